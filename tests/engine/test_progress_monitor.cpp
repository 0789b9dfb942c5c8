// A device that works is not silent, a device that does not return is silent, and time in which the process sleeps
// does not count.
#include "exec/engine/progress_monitor.h"
#include "exec/execute.h"
#include "job/build.h"
#include "job/plan.h"
#include "schedules/orders/schedule.h"
#include "schedules/plan/plan_graph.h"
#include "tests/support/execution.h"
#include "tests/support/refusal.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <thread>

namespace pw {
namespace {

constexpr Ns kSecond = 1'000'000'000;

class MonitoredDevices : public testing::Test {
protected:
    MonitoredDevices() {
        Shape shape;
        shape.devices = shape.stages = 3;
        shape.microbatches = 2;
        plan = make_plan(schedule_named("1f1b"), shape);
        graph.emplace(plan);
        monitor.emplace(*graph, 3);
        limits.task.assign(static_cast<std::size_t>(graph->size()), 30 * kSecond);
        limits.idle = 10 * kSecond;
        limits.no_work = 60 * kSecond;
        monitor->check(limits, 0);
    }
    void check_for(Ns time) {
        for (Ns passed = 0; passed < time; passed += kSecond / 4)
            monitor->check(limits, kSecond / 4);
    }
    int forward(int device) const { return graph->find({Op::Forward, device, 0}); }
    std::string silence(Ns time) {
        return refusal([&] { check_for(time); }, ExitCode::PeerSilent);
    }

    Plan plan;
    std::optional<PlanGraph> graph;
    std::optional<ProgressMonitor> monitor;
    ProgressMonitor::Limits limits;
};

TEST_F(MonitoredDevices, MayTakeLongForATask) {
    monitor->set_working(0, forward(0));
    monitor->set_waiting(1, forward(1));
    monitor->set_waiting(2, forward(2));
    check_for(29 * kSecond);
}

TEST_F(MonitoredDevices, AreNamedWhenSilentWithThoseThatWait) {
    monitor->set_waiting(0, forward(0));
    monitor->set_waiting(1, forward(1));
    monitor->set_working(2, forward(2));
    const std::string said = silence(31 * kSecond);
    expect_says(said, {"device 2 is silent: 2F0 has not ended for 30", "device 0 waits at 0F0", "device 1 waits at"});
}

TEST_F(MonitoredDevices, AreNamedWithTheirLatestTasks) {
    EXPECT_EQ(monitor->last_tasks({0, 1, 2}), "");
    for (int task = 0; task < 20; ++task)
        monitor->finish_task(1, task % 2 == 0 ? forward(0) : forward(2), task * kSecond / 1000);
    monitor->set_working(1, forward(1));
    const char* said =
        "\n  device 1 before that: 2F0 in 19.00 ms, 0F0 in 18.00 ms, 2F0 in 17.00 ms, 0F0 in 16.00 ms, "
        "2F0 in 15.00 ms, 0F0 in 14.00 ms";
    EXPECT_EQ(monitor->last_tasks({0, 1, 2}), said);
    expect_says(silence(31 * kSecond), {"device 1 is silent: 1F0 has not ended for 30", said});

    ProgressMonitor other(*graph, 3);  // the monitor of rank 0
    Message message;
    monitor->write({1}, message);
    MessageReader reader(message);
    other.read(reader);
    EXPECT_EQ(other.last_tasks({0, 1, 2}), said);
}

TEST_F(MonitoredDevices, MustBeginTheNextTaskSoon) {
    monitor->set_waiting(0, forward(0));
    monitor->set_idle(1);
    expect_says(silence(11 * kSecond), {"device 1 is silent: it has begun nothing for 10"});
}

TEST_F(MonitoredDevices, AreReportedWhenAllWait) {
    for (const int device : {0, 1, 2})
        monitor->set_waiting(device, forward(device));
    check_for(59 * kSecond);
    expect_says(silence(2 * kSecond), {"no device has worked for"});
}

// SIGSTOP, a suspended laptop or an overloaded machine: the monitor's clock jumps.
TEST_F(MonitoredDevices, AreNotSilentWhileTheProcessSleeps) {
    monitor->set_working(0, forward(0));
    monitor->set_idle(1);
    for (int jump = 0; jump < 10; ++jump)
        monitor->check(limits, 3600 * kSecond);
}

constexpr const char* kThreeDevices = R"(
workload: {model: uniform, forward: 1 ms, backward_input: 1 ms, backward_weight: 1 ms, output: 1 kB, weights: 2 kB}
cluster: {devices: 3}
pipeline: {schedule: gpipe, micro_batches: 2}
training: {steps: 2}
run: {backend: emulated}
)";

class EmulatedPeers : public Execution {
public:
    explicit EmulatedPeers(const std::vector<std::string>& set) : Execution(kThreeDevices, set) {}
};

// Its tasks are predicted to last fifteen times the timeout.
TEST(Silence, IsNotDetectedInSlowDevices) {
    EXPECT_EQ(EmulatedPeers({"workload.forward=300 ms", "run.timeout=20 ms"}).run().losses.size(), 2u);
}

// The run has no prediction of its tasks' durations.
TEST(Silence, HasAGenerousLimitWithoutAPrediction) {
    RunOptions options;
    options.before_task = [](int device, const Task& task) {
        if (device == 1 && task == Task{Op::Forward, 1, 0})
            std::this_thread::sleep_for(std::chrono::milliseconds(120));
    };
    EXPECT_EQ(Execution(kMlp, {"cluster.devices=2", "run.timeout=40 ms"}).run(options).losses.size(), 3u);
}

// The thread never returns. The run ends without it, and the error names its device although device 0 waits only
// for device 1.
TEST(Silence, EndsTheRunAndNamesTheDevice) {
    auto released = std::make_shared<std::promise<void>>();
    const std::shared_future<void> release = released->get_future().share();
    auto alive = std::make_shared<int>();
    const std::weak_ptr<int> run_alive = alive;
    RunOptions options;
    options.before_task = [release, alive](int device, const Task& task) {
        if (device == 2 && task == Task{Op::Forward, 2, 1})
            release.wait();
    };
    alive.reset();
    const EmulatedPeers emulation({"run.timeout=50 ms"});  // outlives the thread
    const std::string said = refusal([&] { emulation.run(options); }, ExitCode::PeerSilent);
    expect_says(said, {"device 2 is silent: 2F1 has not ended", "device 1 waits at"});
    options.before_task = {};
    released->set_value();
    while (!run_alive.expired())  // until its thread has ended
        std::this_thread::yield();
}

}  // namespace
}  // namespace pw
