// A run that gets too few threads reports this, and ends the threads that it has.
#include "job/build.h"
#include "job/plan.h"
#include "schedules/orders/schedule.h"
#include "tests/support/execution.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace pw {
namespace {

constexpr const char* kManyDevices = R"(
workload: {model: uniform, forward: 1 ms, backward_input: 1 ms, backward_weight: 1 ms, output: 1 kB, weights: 2 kB}
cluster: {devices: 200}
pipeline: {schedule: gpipe, micro_batches: 2}
training: {steps: 1}
run: {backend: emulated}
)";

// The process may allocate only a little more memory: the stacks of a few threads.
TEST(Threads, ARunWithTooFewFails) {
#ifdef PIPEWRIGHT_SANITIZED
    GTEST_SKIP() << "sanitizers need address space";
#endif
    const Execution execution(kManyDevices, {});
    const auto run_with_little = [&] {
        long pages = 0;
        std::FILE* file = std::fopen("/proc/self/statm", "r");
        if (file == nullptr || std::fscanf(file, "%ld", &pages) != 1)
            std::_Exit(3);
        const auto bytes =
            static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{100} << 20);
        const rlimit limit{bytes, bytes};
        setrlimit(RLIMIT_AS, &limit);
        try {
            execution.run();
        } catch (const Error& error) {
            std::fputs(error.what(), stderr);
            std::_Exit(static_cast<int>(error.code()));
        }
        std::_Exit(0);
    };
    EXPECT_EXIT(run_with_little(), testing::ExitedWithCode(1), "cannot start the thread of device .*ulimit");
}

}  // namespace
}  // namespace pw
