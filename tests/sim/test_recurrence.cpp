// Times from one pass over a plan against those from a queue of events, and against the least that fulfil every rule.
#include "schedules/passes/passes.h"
#include "schedules/plan/gradient_sums.h"
#include "sim/metrics.h"
#include "sim/replay.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/drawn_plans.h"
#include "tests/support/relaxed_times.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

namespace pw {
namespace {

void expect_least_times(const Plan& plan, const TransferMode& mode, const Costs& costs, const Trace& trace) {
    std::vector<Ns> durations;
    std::vector<Bytes> bytes;
    for (const TraceEvent& event : trace.events) {
        durations.push_back(event.end - event.start);
        bytes.push_back(event.bytes);
    }
    const RelaxedTimes least(plan, mode, latency_of(costs), durations, bytes);
    ASSERT_TRUE(least.fulfilled());
    for (std::size_t task = 0; task < trace.events.size(); ++task)
        ASSERT_EQ((TaskTime{trace.events[task].start, trace.events[task].end}), least.times()[task])
            << print(trace.events[task].task);
}

TEST(Recurrence, TimesAreThoseOfTheEventsAndTheLeastOfAll) {
    Random random(2026);
    int compared = 0;
    const int count = soaks() ? 200'000 : rounds(300);
    for (int round = 0; round < count; ++round) {
        std::optional<Drawn> drawn = draw(random);
        if (!drawn)
            continue;
        add_network(random, drawn->plan.shape, drawn->costs);
        const auto& [plan, costs, mode] = *drawn;
        Simulator simulator(plan, mode);
        const Trace expected = simulator.trace_by_events(costs);
        ASSERT_EQ(simulator.trace(costs), expected) << plan.schedule << ' ' << print(mode) << " round " << round;
        expect_least_times(plan, mode, costs, expected);
        if (round % 8 == 0) {
            const auto graph = std::make_shared<const Proof>(Proof{PlanGraph(plan)});
            ASSERT_EQ(mechanics_of(plan, graph, mode, expected), Mechanics{}) << plan.schedule << " round " << round;
        }
        ASSERT_FALSE(HasFatalFailure()) << plan.schedule << ' ' << print(mode) << " round " << round;
        ++compared;
    }
    EXPECT_GT(compared, count / 2);
}

// The rest of a sum after the backward does not wait for a list that waits for an exchange or a copy.
TEST(Recurrence, SumsInBucketsEndAsByTheEvents) {
    Random random(40);
    int compared = 0;
    for (int round = 0; round < rounds(1500); ++round) {
        std::optional<Drawn> drawn = draw(random);
        if (!drawn)
            continue;
        auto& [plan, costs, mode] = *drawn;
        ClusterEdit(costs)->sums = {.latency = pick(random, 0, 9), .bandwidth = 1e9 / pick(random, 1, 3)};
        for (StageBytes& bytes : costs.bytes)
            bytes.weights = pick(random, 0, 300);
        costs.zero = pick(random, 0, 2) == 0 ? 1 : 0;
        costs.sum_bucket = pick(random, 1, 60);
        add_gradient_sums(costs, plan.shape);
        if (std::ranges::none_of(costs.stage_sums,
                                 [](const StageSum& sum) { return sum.alone > 0 && sum.buckets > 1; }))
            continue;
        Simulator simulator(plan, mode);
        const Trace expected = simulator.trace_by_events(costs);
        ASSERT_EQ(simulator.trace(costs), expected) << plan.schedule << ' ' << print(mode) << " round " << round;
        expect_least_times(plan, mode, costs, expected);
        ASSERT_FALSE(HasFatalFailure()) << plan.schedule << ' ' << print(mode) << " round " << round;
        ASSERT_EQ(simulator.sample(costs, lognormal_jitter(0), 3, 1, 1).step_times,
                  std::vector<Ns>(3, simulator.step_time(costs)));
        ++compared;
    }
    EXPECT_GT(compared, 50);
}

TEST(Simulator, TakesTheNumbersOfTheTraceWithoutIt) {
    Random random(7);
    for (int round = 0; round < rounds(160); ++round) {
        const std::optional<Drawn> drawn = draw(random);
        if (!drawn)
            continue;
        const auto& [plan, costs, mode] = *drawn;
        Simulator simulator(plan, mode);
        const Trace trace = simulator.trace(costs);
        ASSERT_EQ(simulator.metrics(costs, without_hash(plan)), metrics_of(trace))
            << plan.schedule << " round " << round;
        ASSERT_EQ(simulator.step_time(costs), metrics_of(trace).step_time) << plan.schedule << " round " << round;
    }
}

}  // namespace
}  // namespace pw
