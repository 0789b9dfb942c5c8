// Steady steps allocate nothing, since the first step has allocated all memory. Allocations of oneDNN while it
// computes are not counted.
#include "tests/support/execution.h"

#include <dlfcn.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <oneapi/dnnl/dnnl.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <vector>

namespace {
thread_local long allocations = 0;  // of this thread
}  // namespace

// Inlined into each other, GCC takes their malloc and free for a mistake.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    ++allocations;
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes))
        return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

// Replaces oneDNN's function.
extern "C" dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int count,
                                                const dnnl_exec_arg_t* arguments) {
    static const auto own =
        reinterpret_cast<decltype(&dnnl_primitive_execute)>(dlsym(RTLD_NEXT, "dnnl_primitive_execute"));
    const long before = allocations;
    const dnnl_status_t status = own(primitive, stream, count, arguments);
    allocations = before;
    return status;
}

namespace pw {
namespace {

// Counts the allocations of each device's thread by step, from the begin of its first task to the begin of its last
// one.
class Counter {
public:
    explicit Counter(const Plan& plan) : plan_(plan), devices_(plan.order.size()) {
        for (Device& device : devices_)
            device.counted.reserve(1000);
    }
    void before_task(int number) {  // on the device's thread
        Device& device = devices_[static_cast<std::size_t>(number)];
        const std::size_t length = plan_.order[static_cast<std::size_t>(number)].size();
        const std::size_t position = device.tasks++ % length;
        if (position == 0)
            device.at_first = allocations;
        if (position + 1 == length)
            device.counted.push_back(allocations - device.at_first);
    }
    std::vector<std::vector<long>> counted() const {  // [device][step]
        std::vector<std::vector<long>> all;
        for (const Device& device : devices_)
            all.push_back(device.counted);
        return all;
    }

private:
    struct alignas(64) Device {
        std::size_t tasks = 0;
        long at_first = 0;
        std::vector<long> counted;
    };
    const Plan& plan_;
    std::vector<Device> devices_;
};

void expect_no_allocations(const char* yaml, std::vector<std::string> set, const std::optional<Model>& model = {}) {
    set.insert(set.end(), {"training.steps=5", "pipeline.split=even"});
    const Execution execution = model ? Execution(yaml, set, *model) : Execution(yaml, set);
    Counter counter(execution.job().plan);
    RunOptions options;
    options.before_task = [&](int device, const Task&) { counter.before_task(device); };
    (void)execution.run(options);
    const std::vector<std::vector<long>> counted = counter.counted();
    for (std::size_t device = 0; device < counted.size(); ++device) {
        ASSERT_EQ(counted[device].size(), 5U);
        EXPECT_EQ((std::vector<long>(counted[device].begin() + 2, counted[device].end())), (std::vector<long>{0, 0, 0}))
            << "device " << device << ": " << yaml << fmt::format("{}", fmt::join(set, " "));
    }
}

TEST(SteadySteps, AllocateNothing) {
    for (const char* backend : {"reference", "cpu", "emulated"})
        for (const char* schedule : {"naive", "gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"})
            expect_no_allocations(kMlp, {"cluster.devices=2", fmt::format("pipeline.schedule={}", schedule),
                                         fmt::format("run.backend={}", backend)});
}

TEST(SteadySteps, AllocateNothingInOtherLanes) {
    for (const char* transfer : {"exchange: blocking", "receive: deferred", "communicator: one, protocol: rendezvous"})
        expect_no_allocations(kMlp, {"cluster.devices=3", "pipeline.schedule=1f1b", "run.backend=cpu",
                                     fmt::format("transfer={{{}}}", transfer)});
}

TEST(SteadySteps, AllocateNothingForSums) {
    expect_no_allocations(kMlp, {"cluster.devices=2", "pipeline.stages=1", "pipeline.replicas=[2]", "run.backend=cpu",
                                 "pipeline.schedule=gpipe"});
    expect_no_allocations(kMlp, {"cluster.devices=4", "pipeline.stages=2", "pipeline.replicas=[2,2]",
                                 "pipeline.schedule=1f1b", "run.backend=cpu", "training.clip_norm=0.1"});
    for (const char* more : {"training.shard_optimizer=true", "transfer.sum_bucket=500 B", "training.optimizer=adamw"})
        expect_no_allocations(kMlp, {"cluster.devices=4", "pipeline.stages=2", "pipeline.replicas=[2,2]",
                                     "pipeline.schedule=1f1b", "run.backend=cpu", more});
}

TEST(SteadySteps, AllocateNothingForOtherModels) {
    const std::vector<std::string> set{"cluster.devices=2", "pipeline.schedule=1f1b", "run.backend=cpu"};
    for (const char* yaml : {kSmallUNet, kSmallGpt, kSmallLlama})
        expect_no_allocations(yaml, set);
    expect_no_allocations(kResNet, set, small_resnet());
}

}  // namespace
}  // namespace pw
