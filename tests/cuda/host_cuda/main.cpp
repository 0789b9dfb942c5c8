// Runs a test on the stand-in, with slow streams.
#include "tests/cuda/host_cuda/host_cuda.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

// The stand-in computes tf32 as fp32 except in products, whose tests run both; PIPEWRIGHT_SOAK=1 runs the whole
// grid.
constexpr const char* kAllButTf32 = "-Cuda/*tf32:Shapes/*Tf32*:Precisions/CudaTokens*Tf32:Precisions/CudaCaptures*Tf32";

int main(int count, char** values) {
    testing::InitGoogleTest(&count, values);
    if (GTEST_FLAG_GET(filter) == "*" && !pw::soaks())
        GTEST_FLAG_SET(filter, kAllButTf32);
    host_cuda::slow_streams(7);
    return RUN_ALL_TESTS();
}
