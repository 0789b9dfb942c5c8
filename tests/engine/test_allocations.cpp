// Steady steps allocate nothing: what they need is there since the first.
#include "tests/support/execution.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <execinfo.h>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <vector>

namespace {
thread_local long allocations = 0;  // of this thread
thread_local bool tracing = false;
}  // namespace

void* operator new(std::size_t bytes) {
    ++allocations;
    if (tracing && getenv("TRACE_ALLOC")) {
        tracing = false;
        void* f[24];
        int n = backtrace(f, 24);
        backtrace_symbols_fd(f, n, 2);
        write(2, "--\n", 3);
        tracing = true;
    }
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes))
        return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace pw {
namespace {

// Allocations of each device's thread between its first task and its last, by step.
std::map<int, std::vector<long>> allocations_of(const Execution& execution) {
    const Job& job = execution.job();
    std::mutex mutex;
    std::map<int, std::vector<long>> counted;
    std::map<int, long> at_first;
    std::map<int, std::size_t> position;
    RunOptions options;
    options.before_task = [&](int device, const Task&) {
        const long now = allocations;
        tracing = false;
        const std::lock_guard lock(mutex);
        const std::size_t length = job.plan.order[static_cast<std::size_t>(device)].size();
        const std::size_t at = position[device]++ % length;
        if (at == 0)
            at_first[device] = allocations;
        if (at + 1 == length)
            counted[device].push_back(now - at_first[device]);
        else if (position[device] > length)
            tracing = true;
    };
    (void)execution.run(options);
    return counted;
}

void expect_none(const char* yaml, const std::vector<std::string>& set) {
    for (const auto& [device, by_step] : allocations_of(Execution(yaml, set)))
        for (std::size_t step = 1; step < by_step.size(); ++step)
            EXPECT_EQ(by_step[step], 0) << "device " << device << ", step " << step << ": "
                                        << fmt::format("{}", fmt::join(set, " "));
}

TEST(SteadySteps, AllocateNothing) {
    for (const char* backend : {"reference", "cpu", "emulated"})
        for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1"})
            expect_none(kMlp, {"cluster.devices=2", "pipeline.split=even", "training.steps=4",
                               fmt::format("pipeline.schedule={}", schedule), fmt::format("run.backend={}", backend)});
}

}  // namespace
}  // namespace pw
