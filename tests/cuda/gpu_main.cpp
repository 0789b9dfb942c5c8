// Runs tests that need a GPU. Without one they are skipped, which the exit status 77 reports.
#include "exec/cuda/backend.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>

int main(int count, char** values) {
    testing::InitGoogleTest(&count, values);
    const bool lists = testing::GTEST_FLAG(list_tests);
    if (const std::string status = pw::cuda_status(); !lists && status != "ready") {
        fmt::print(stderr, "SKIPPED: {}\n", status);
        return 77;
    }
    return RUN_ALL_TESTS();
}
