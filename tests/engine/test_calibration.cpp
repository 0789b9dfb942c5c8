// Costs from probes: the costs of a simulation are recovered from it, every task of a plan has a time, and no probe
// is the plan itself.
#include "exec/measuring/calibrate.h"
#include "exec/measuring/interleaved.h"
#include "exec/measuring/probes.h"
#include "exec/measuring/turns.h"
#include "schedules/orders/schedule.h"
#include "sim/simulate.h"
#include "tests/support/execution.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <tuple>

namespace pw {
namespace {

class Calibrations : public testing::TestWithParam<std::vector<std::string>> {
protected:
    std::vector<std::string> settings() const {
        std::vector<std::string> set = GetParam();
        set.emplace_back("cluster.devices=2");
        set.emplace_back("training.steps=4");
        return set;
    }
};

Ns time_of(Op op, const StageCost& cost) {
    switch (op) {
        case Op::Forward:
            return cost.forward;
        case Op::Backward:
            return cost.backward;
        case Op::BackwardInput:
            return cost.backward_input;
        case Op::BackwardWeight:
            return cost.backward_weight;
        case Op::Recompute:
            return cost.recompute;
        case Op::SumGradients:
            return cost.sum_gradients;
        case Op::Update:
            return cost.update;
        case Op::SendForward:
        case Op::RecvForward:
        case Op::SendBackward:
        case Op::RecvBackward:
        case Op::Offload:
        case Op::Reload:
        case Op::Store:
        case Op::Load:
            break;
    }
    return 0;
}

TEST_P(Calibrations, EveryTaskHasATime) {
    const Execution execution(kMlp, settings());
    const Job& job = execution.job();
    const InterleavedRun run = run_interleaved(job, 2, {});
    EXPECT_EQ(run.turns, 2);
    EXPECT_EQ(run.runs.size(), 1u);
    EXPECT_EQ(run.runs.front().weights_hash, execution.run().weights_hash);  // turns change no number
    EXPECT_GT(run.reference_work.median(), 0);
    for (const std::vector<Task>& order : job.plan.order)
        for (const Task& task : order)
            if (!is_transfer(task.op)) {
                EXPECT_GT(time_of(task.op, run.calibration.costs.stage[task.stage]), 0) << print(task);
                EXPECT_GT(time_of(task.op, run.calibration.costs.busy[task.stage]), 0) << print(task);
            }
    for (const TaskTimes& times : run.calibration.tasks) {
        EXPECT_GT(times.samples, 0);
        EXPECT_LE(std::abs(times.autocorrelation), 1);
    }
}

TEST_P(Calibrations, FirstStepsOfTurnsAreLeftOut) {
    const Execution execution(kMlp, settings());
    if (execution.job().plan.asynchronous)
        GTEST_SKIP() << "it is one step";
    std::set<int> steps;
    const InterleavedRun run = run_interleaved(execution.job(), 2, {});
    for (const TraceEvent& event : run.runs.front().trace.events)
        steps.insert(event.step);
    EXPECT_EQ(steps, (std::set<int>{0, 1, 3}));
}

TEST_P(Calibrations, ProbesAreOtherPlansOfOtherSizes) {
    const Execution execution(kMlp, settings());
    const Plan& plan = execution.job().plan;
    const Probes probes = probes_of(execution.job(), 2);
    for (const Job* probe : {&probes.alone, &probes.near}) {
        EXPECT_NE(probe->plan.shape.microbatches, execution.job().setup.pipeline.micro_batches);
        EXPECT_EQ(probe->plan.shape.placement, plan.shape.placement);
        EXPECT_NE(hash_of(probe->plan), hash_of(plan));
    }
}

// The same step twice, since calibrate() leaves the first one out.
ProbeTrace two_steps(Job& probe, const Costs& costs) {
    probe.setup.training.steps = 2;
    Trace trace = simulate(probe.plan, costs, probe.mode);
    const std::vector<TraceEvent> first = trace.events;
    for (TraceEvent event : first) {
        event.step = 1;
        trace.events.push_back(event);
    }
    return {&probe, {trace}, 1};
}

// Times over the load of the neighbours are nearly on a straight line.
TEST_P(Calibrations, FindWhatTheSimulatorWasTold) {
    const Execution execution(kMlp, settings());
    Job job = execution.job();
    Costs& told = job.costs;
    told.dispatch = 0;
    ClusterEdit(told)->link = {5'000, std::numeric_limits<double>::infinity()};
    ClusterEdit(told)->kind.clear();
    told.busy.clear();
    for (int stage = 0; stage < job.plan.shape.stages; ++stage) {
        const Ns unit = 1'000'000 + 300'000 * stage;
        told.stage[stage] = {unit, 3 * unit, unit, 2 * unit, unit, unit / 2, unit / 4, unit / 8};
        told.busy.push_back(told.stage[stage]);
        for (Ns* time : {&told.busy[stage].forward, &told.busy[stage].backward, &told.busy[stage].backward_input,
                         &told.busy[stage].backward_weight, &told.busy[stage].recompute})
            *time = *time * 11 / 10;
    }
    if (!told.last.empty()) {
        told.last = told.stage;
        told.busy_last = told.busy;
    }
    Probes probes = probes_of(job, 1);
    std::vector<ProbeTrace> traces;
    for (Job* probe : {&probes.alone, &probes.near}) {
        traces.push_back(two_steps(*probe, told));
    }
    const Costs found = calibrate(job, traces).costs;
    const double step = static_cast<double>(Simulator(job.plan, job.mode).step_time(told));
    const double again = static_cast<double>(Simulator(job.plan, job.mode).step_time(found));
    EXPECT_NEAR(again / step, 1, 0.015);
    EXPECT_NEAR(static_cast<double>(found.cluster->link.latency), 5'000, 50);
    EXPECT_EQ(found.dispatch, 0);
}

struct PipeDream {
    Job job;
    Probes probes;
    ProbeTrace alone, near;
};

PipeDream pipedream_of_one_cost() {
    const Execution execution(kMlp, {"cluster.devices=2", "pipeline.schedule=pipedream", "training.steps=4"});
    PipeDream all{execution.job(), probes_of(execution.job(), 1), {}, {}};
    Costs& told = all.job.costs;
    told.busy.clear();
    for (StageCost& cost : told.stage)
        cost = {1'000'000, 3'000'000, 1'000'000, 2'000'000, 0, 125'000};
    all.alone = two_steps(all.probes.alone, told);
    all.near = {&all.probes.near, {simulate(all.probes.near.plan, told, all.probes.near.mode)}, 1};
    return all;
}

// The first tasks of an asynchronous run find cold caches.
TEST(Calibration, LeavesOutFirstTasksOfAsynchronousProbes) {
    PipeDream all = pipedream_of_one_cost();
    std::set<std::tuple<int, int, Op>> warm;
    for (TraceEvent& event : all.near.traces.front().events)
        if (!is_transfer(event.task.op) && warm.emplace(event.device, event.task.stage, event.task.op).second)
            event.end += 9 * (event.end - event.start);
    const Costs found = calibrate(all.job, {all.alone, all.near}).costs;
    for (const StageCost& cost : found.stage) {
        EXPECT_NEAR(static_cast<double>(cost.forward), 1e6, 1e4);
        EXPECT_NEAR(static_cast<double>(cost.backward), 3e6, 3e4);
        EXPECT_NEAR(static_cast<double>(cost.update), 125e3, 1e4);
    }
}

// A plan that only writes gradients is not predicted by the few tasks of a probe that add them.
TEST(Calibration, MeansOfAddedAndWrittenGradientsAreOneWhereAddingSeemsShorter) {
    PipeDream all = pipedream_of_one_cost();
    for (TraceEvent& event : all.alone.traces.front().events)
        if (event.task.op == Op::Backward)
            event.end -= (event.end - event.start) / 2;
    const Costs found = calibrate(all.job, {all.near, all.alone}).costs;
    for (std::size_t stage = 0; stage < found.stage.size(); ++stage) {
        EXPECT_GT(found.busy[stage].backward, 2'250'000) << stage;
        EXPECT_EQ(found.stage[stage].accumulate, 0) << stage;
    }
}

using Settings = std::vector<std::string>;
std::vector<Settings> some_settings() {
    std::vector<Settings> settings{{"pipeline.schedule=zb-h1"},
                                   {"pipeline.schedule=naive"},
                                   {"pipeline.schedule=1f1b", "pipeline.recompute=all"},
                                   {"pipeline.schedule=gpipe"},
                                   {"pipeline.schedule=zb-v"},
                                   {"pipeline.schedule=interleaved"},
                                   {"pipeline.schedule=pipedream"},
                                   {"pipeline.schedule=1f1b", "pipeline.mini_batch=11"},
                                   {"pipeline.schedule=1f1b", "pipeline.replicas=[2]"}};
    OneIn some(2);
    std::erase_if(settings, [&](const Settings&) { return !some.picks(); });
    return settings;
}
INSTANTIATE_TEST_SUITE_P(Plans, Calibrations, testing::ValuesIn(some_settings()));

// Replicas of one stage with two micro-batches: in the plan each device has one or none, in the probes each has
// two.
TEST(Probes, GiveEveryHolderTwoMicroBatches) {
    for (const int replicas : {1, 2, 3, 4}) {
        const Execution execution(
            kMlp, {fmt::format("cluster.devices={}", replicas), "pipeline.schedule=gpipe", "pipeline.split=[]",
                   fmt::format("pipeline.replicas=[{}]", replicas), "pipeline.micro_batches=2", "training.steps=4"});
        const Plan& alone = probes_of(execution.job(), 2).alone.plan;
        for (const std::vector<Task>& order : alone.order)
            EXPECT_GE(std::ranges::count(order, Op::Backward, &Task::op), 2) << replicas;
    }
}

// A very wrong profile has no effect: every time of the calibrated prediction is from the probes.
TEST(Probes, CalibrateEveryTime) {
    const Execution execution(kMlp, {"cluster.devices=4", "pipeline.schedule=gpipe", "pipeline.split=[]",
                                     "pipeline.replicas=[4]", "pipeline.micro_batches=2", "training.steps=4"});
    Job job = execution.job();
    const Ns wrong = 3'600'000'000'000;
    for (StageCost& cost : job.costs.stage)
        cost.forward = cost.backward = cost.update = wrong;
    const Costs found = run_interleaved(job, 2, {}).calibration.costs;
    EXPECT_LT(found.stage[0].forward, wrong / 1000);
    EXPECT_LT(found.stage[0].backward, wrong / 1000);
    EXPECT_LT(found.stage[0].update, wrong / 1000);
}

TEST(Probes, RefuseATaskWithoutATime) {
    const Execution execution(kMlp, {"cluster.devices=2", "pipeline.schedule=zb-h1", "training.steps=4"});
    Job other = execution.job();
    for (std::vector<Task>& order : other.plan.order)
        for (Task& task : order)
            if (task.op == Op::BackwardInput)
                task.op = Op::Recompute;  // no probe runs one
    Probes probes = probes_of(execution.job(), 1);
    const ProbeTrace near = two_steps(probes.near, probes.near.costs);
    expect_says(refusal([&] { (void)calibrate(other, {near}); }, ExitCode::RunFailed), {"have no time of 0R0"});
}

// Simulated with tasks of one unit and free links: the probes' size is determined from the work in the lists, not
// from a simulation.
TEST(Probes, TakeAtMostTwiceAsLongAsTheRun) {
    for (const std::string schedule : {"naive", "gpipe", "1f1b", "zb-h1", "pipedream"})
        for (const int devices : {1, 2, 4})
            for (const int microbatches : {1, 2, 8, 20})
                for (const int steps : {8, 30, 100}) {
                    const Execution execution(
                        kMlp, {fmt::format("cluster.devices={}", devices), "pipeline.schedule=" + schedule,
                               fmt::format("pipeline.micro_batches={}", microbatches),
                               fmt::format("training.steps={}", steps)});
                    Job job = execution.job();
                    job.costs.stage.assign(job.costs.stage.size(), {});
                    for (StageCost& cost : job.costs.stage)
                        cost.forward = cost.backward = cost.backward_input = cost.backward_weight = 1'000'000;
                    job.costs.busy.clear();
                    ClusterEdit(job.costs)->kind.clear();
                    job.costs.dispatch = 0;
                    ClusterEdit(job.costs)->link = {};
                    const int turns = affordable_turns(job, 8);
                    const Probes probes = probes_of(job, turns);
                    const auto time_of = [](const Job& one) {
                        return steps_of(one) * metrics_of(simulate(one.plan, one.costs, one.mode)).makespan;
                    };
                    const Ns near = time_of(probes.near) * (job.plan.asynchronous ? turns : 1);
                    const std::string what = fmt::format("{} on {}, {} x {}", schedule, devices, steps, microbatches);
                    EXPECT_TRUE(turns == 1 || time_of(probes.alone) + near <= 2 * time_of(job)) << what;
                    EXPECT_TRUE(turns == 8 || microbatches < 8 || steps < 30) << what;
                }
}

TEST(Turns, AnAsynchronousJobRunsInTheMiddleOnes) {
    const auto those = [](int turns) {
        std::vector<int> found;
        for (int turn = 0; turn < turns; ++turn)
            if (runs_in_turn(turn, turns, 8))
                found.push_back(turn);
        return found;
    };
    EXPECT_EQ(those(1), (std::vector<int>{0}));
    EXPECT_EQ(those(2), (std::vector<int>{0}));
    EXPECT_EQ(those(8), (std::vector<int>{3}));
    EXPECT_EQ(those(16), (std::vector<int>{3, 11}));
}

TEST(Turns, HaveTwoStepsEach) {
    for (int steps = 1; steps < 40; ++steps)
        for (int wanted = 1; wanted < 8; ++wanted) {
            const int turns = turns_of(steps, wanted);
            int begun = 0;
            for (int step = 0; step < steps; ++step) {
                begun += begins_turn(step, steps, turns) ? 1 : 0;
                EXPECT_FALSE(turns > 1 && step > 0 && begins_turn(step, steps, turns) &&
                             begins_turn(step - 1, steps, turns));
            }
            EXPECT_EQ(begun, turns);
        }
}

// Returns a function that is false the first `times` times that it is called.
std::function<bool()> after(int times) {
    return [times, asked = std::make_shared<int>(0)] { return (*asked)++ >= times; };
}

RunOptions stopping_after(int steps) {
    RunOptions options;
    options.should_stop = after(steps - 1);
    return options;
}

// Turns of two steps: the first is asked after its third step, when the second has run two.
TEST(Turns, AStopOfOneEndsAllAfterTheirNextStep) {
    const Execution first(kMlp, {"training.steps=8"}), second(kMlp, {"training.steps=8"});
    const auto results = run_in_turns({{&first.job(), stopping_after(3)}, {&second.job()}}, 4, [] {});
    EXPECT_EQ(results[0].front().stopped_after, 3);
    EXPECT_EQ(results[1].front().stopped_after, 3);
}

TEST(Turns, AfterAStopNothingBegins) {
    for (const char* schedule : {"pipeline.schedule=gpipe", "pipeline.schedule=pipedream"}) {
        const Execution first(kMlp, {"training.steps=8", schedule}), second(kMlp, {"training.steps=8", schedule});
        const auto results = run_in_turns({{&first.job(), stopping_after(1)}, {&second.job()}}, 4, [] {});
        EXPECT_EQ(results[0].size(), 1u) << schedule;
        EXPECT_TRUE(results[1].empty()) << schedule;
    }
}

// Turns of two steps: at the end of the second turn of the job the answer becomes true, and every run has one more
// step.
TEST(Calibration, OfAStoppedRunIsThatOfItsSteps) {
    const Execution execution(kMlp, {"cluster.devices=2", "pipeline.schedule=1f1b", "training.steps=40"});
    RunOptions options;
    const auto stop = std::make_shared<bool>(false);
    options.progress = [stop](const Progress& progress) { *stop = *stop || progress.step == 4; };
    options.should_stop = [stop] { return *stop; };
    const InterleavedRun run = run_interleaved(execution.job(), 20, options);
    EXPECT_EQ(run.runs.front().stopped_after, 5);
    for (const TaskTimes& times : run.calibration.tasks)
        EXPECT_GT(times.samples, 0);
    EXPECT_FALSE(run.calibration.tasks.empty());
    for (const TraceEvent& event : run.runs.front().trace.events)
        EXPECT_TRUE(event.step == 0 || event.step == 1 || event.step == 3) << event.step;
}

TEST(Calibration, OfARunThatIsStoppedAtOnceIsRefused) {
    const Execution execution(kMlp, {"cluster.devices=2", "pipeline.schedule=1f1b", "training.steps=40"});
    expect_says(refusal([&] { (void)run_interleaved(execution.job(), 20, stopping_after(1)); }, ExitCode::RunFailed),
                {"was stopped before its first step"});
}

TEST(Turns, AFailureOfOneEndsAll) {
    const Execution good(kMlp, {"training.steps=4"}), bad(kMlp, {"training.steps=4"});
    RunOptions fails;
    fails.before_task = [](int, const Task&) { throw Error(ExitCode::RunFailed, "on purpose"); };
    EXPECT_THROW(run_in_turns({{&good.job()}, {&bad.job(), fails}}, 2, [] {}), Error);
}

}  // namespace
}  // namespace pw
