// Costs from probes: what the simulator was told is found again, every task of a plan has a time, and no probe is the
// plan itself.
#include "exec/calibrate.h"
#include "exec/interleaved.h"
#include "exec/probes.h"
#include "exec/turns.h"
#include "schedules/schedule.h"
#include "sim/simulate.h"
#include "tests/support/execution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

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
        default:
            return cost.update;
    }
}

TEST_P(Calibrations, EveryTaskHasATime) {
    const Execution execution(kMlp, settings());
    const Job& job = execution.job();
    const InterleavedRun run = run_interleaved(job, 2, {});
    EXPECT_EQ(run.turns, 2);
    EXPECT_EQ(run.runs.size(), job.plan.asynchronous ? 2u : 1u);
    EXPECT_EQ(run.runs.front().weights_hash, execution.run().weights_hash);  // turns change no number
    EXPECT_GT(run.yardstick.median(), 0);
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
        GTEST_SKIP() << "it runs anew in every turn";
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
        EXPECT_NE(probe->plan.shape.microbatches, execution.job().config.pipeline.micro_batches);
        EXPECT_EQ(probe->plan.shape.placement, plan.shape.placement);
        EXPECT_NE(hash_of(probe->plan), hash_of(plan));
    }
}

// Times over the part of the time with neighbours are no straight line, but near to one.
TEST_P(Calibrations, FindWhatTheSimulatorWasTold) {
    const Execution execution(kMlp, settings());
    Job job = execution.job();
    Costs& told = job.costs;
    told.dispatch = 0;
    told.link = {5'000, std::numeric_limits<double>::infinity()};
    told.speed.clear();
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
        probe->config.training.steps = 2;
        Trace trace = simulate(probe->plan, told, probe->mode);
        const std::vector<TraceEvent> first = trace.events;
        for (TraceEvent event : first) {
            event.step = 1;
            trace.events.push_back(event);
        }
        traces.push_back({probe, {trace}, 1});
    }
    const Costs found = calibrate(job, traces).costs;
    const double step = static_cast<double>(Simulator(job.plan, job.mode).step_time(told));
    const double again = static_cast<double>(Simulator(job.plan, job.mode).step_time(found));
    EXPECT_NEAR(again / step, 1, 0.015);
    EXPECT_NEAR(static_cast<double>(found.link.latency), 5'000, 50);
    EXPECT_EQ(found.dispatch, 0);
}

using Settings = std::vector<std::string>;
INSTANTIATE_TEST_SUITE_P(Plans, Calibrations,
                         testing::Values(Settings{"pipeline.schedule=naive"}, Settings{"pipeline.schedule=gpipe"},
                                         Settings{"pipeline.schedule=1f1b", "pipeline.recompute=all"},
                                         Settings{"pipeline.schedule=zb-h1"}, Settings{"pipeline.schedule=interleaved"},
                                         Settings{"pipeline.schedule=zb-v"}, Settings{"pipeline.schedule=pipedream"},
                                         Settings{"pipeline.schedule=1f1b", "pipeline.mini_batch=11"},
                                         Settings{"pipeline.schedule=1f1b", "pipeline.replicas=[2]"}));

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

TEST(Turns, AFailureOfOneEndsAll) {
    const Execution good(kMlp, {"training.steps=4"}), bad(kMlp, {"training.steps=4"});
    RunOptions fails;
    fails.before_task = [](int, const Task&) { throw Error(ExitCode::RunFailed, "on purpose"); };
    EXPECT_THROW(run_in_turns({{&good.job()}, {&bad.job(), fails}}, 2, [] {}), Error);
}

}  // namespace
}  // namespace pw
