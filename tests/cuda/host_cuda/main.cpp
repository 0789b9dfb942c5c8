// Runs a test on the stand-in, with streams that take their time.
#include "tests/cuda/host_cuda/host_cuda.h"

#include <gtest/gtest.h>

int main(int count, char** values) {
    testing::InitGoogleTest(&count, values);
    host_cuda::slow_streams(7);
    return RUN_ALL_TESTS();
}
