// The log of a run's steps: a bounded log has the same report as a whole one.
#include "exec/engine/step_log.h"
#include "sim/metrics.h"
#include "tests/support/execution.h"

#include <gtest/gtest.h>

#include <random>

namespace pw {
namespace {

constexpr int kEvents = 4;

StepRecord step_of(int step, Ns time) {
    StepRecord record;
    record.events.resize(1);
    record.memory.resize(1);
    const Ns start = step * Ns{1'000'000};
    for (int event = 0; event < kEvents; ++event)
        record.events[0].push_back({step, 0, 0, {Op::Forward, 0, event}, start, start + time, 0, -1});
    record.memory[0].push_back({step, 0, start, {}});
    return record;
}

struct Logs {
    StepLog whole{true}, bounded{false, 100 * kEvents};

    void add(int step, Ns time) {
        whole.add(step, step_of(step, time));
        bounded.add(step, step_of(step, time));
        EXPECT_LE(bounded.kept_events(), 100u * kEvents);
    }
    static Metrics metrics(const StepLog& log) {
        Trace trace;
        trace.devices = trace.stages = 1;
        log.write(trace);
        return metrics_of(trace);
    }
};

TEST(StepLog, HasTheSameMedianStepIfBounded) {
    for (const int steps : {1, 2, 3, 50, 101, 102, 2000})
        for (const Ns spread : {1, 7, 100'000}) {
            std::mt19937 random(static_cast<unsigned>(steps));
            Logs logs;
            for (int step = 0; step < steps; ++step)
                logs.add(step, 1000 + static_cast<Ns>(random() % static_cast<unsigned>(spread)));
            ASSERT_TRUE(logs.bounded.has_median()) << steps;
            const Metrics whole = Logs::metrics(logs.whole), bounded = Logs::metrics(logs.bounded);
            EXPECT_EQ(bounded.makespan, whole.makespan) << steps << " " << spread;
            EXPECT_EQ(bounded.step == 0, steps == 1);
        }
}

TEST(StepLog, ReportsThatTheMedianIsGone) {
    Logs logs;
    for (int step = 0; step < 2000; ++step)
        logs.add(step, 10 + 100'000 * (step > 1900) - step % 2);
    EXPECT_TRUE(logs.bounded.has_median());
    Logs drifting;
    for (int step = 0; step < 4000; ++step)
        drifting.add(step, step < 1000 ? 10'000 + step : 100 + step % 97 + step / 10);
    const Metrics whole = Logs::metrics(drifting.whole), bounded = Logs::metrics(drifting.bounded);
    EXPECT_NE(whole.makespan, bounded.makespan);
    EXPECT_FALSE(drifting.bounded.has_median());
}

TEST(StepLog, HasOneStepIfTheTraceIsNotWhole) {
    RunOptions options;
    options.whole_trace = false;
    for (const char* backend : {"reference", "emulated"}) {
        const std::vector<std::string> set{"cluster.devices=2", "training.steps=6",
                                           std::string("run.backend=") + backend};
        const RunResult bounded = Execution(kMlp, set).run(options), whole = Execution(kMlp, set).run();
        expect_equal(bounded, whole, backend);
        EXPECT_EQ(bounded.losses.size(), 6u);
        EXPECT_EQ(6 * bounded.trace.events.size(), whole.trace.events.size());
        EXPECT_EQ(bounded.peak, whole.peak);
        const Metrics metrics = metrics_of(bounded.trace);
        EXPECT_GT(metrics.step, 0);
        for (const TraceEvent& event : bounded.trace.events)
            EXPECT_EQ(event.step, metrics.step);
        for (std::size_t device = 0; device < 2; ++device)
            EXPECT_EQ(metrics.devices[device].memory, whole.peak[device]);
    }
}

}  // namespace
}  // namespace pw
