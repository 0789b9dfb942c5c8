// The error of a prediction in parts, by hand and for plans of every schedule.
#include "sim/replay.h"

#include "schedules/memory/buffers.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/trace/trace_plan.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/refusal.h"
#include "tests/support/shapes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace pw {
namespace {

TransferMode mode_of(const Costs& costs) {
    TransferMode mode;
    mode.sent_copies = keeps_copies(costs, mode.early_receive());
    return mode;
}

std::shared_ptr<const Proof> graph_alone(const Plan& plan) {
    return std::make_shared<const Proof>(Proof{PlanGraph(plan)});
}

ErrorParts parts_of(const Plan& plan, const Costs& costs, const Trace& predicted, const Trace& measured,
                    const Trace* calibrated = nullptr) {
    return error_parts(plan, graph_alone(plan), mode_of(costs), predicted, calibrated, measured);
}

Mechanics mechanics_in(const Plan& plan, const Costs& costs, const Trace& trace) {
    return mechanics_of(plan, graph_alone(plan), mode_of(costs), trace);
}

void expect_sums(const ErrorParts& parts) {
    EXPECT_EQ(parts.mechanics.total() + parts.jitter + parts.costs + parts.drift.value_or(0),
              parts.predicted - parts.measured);
    const Ns by_task = std::accumulate(parts.by_task.begin(), parts.by_task.end(), Ns{0},
                                       [](Ns sum, const CostPart& part) { return sum + part.time; });
    EXPECT_EQ(by_task, parts.costs);
}

Plan small_plan(std::string_view schedule) {
    const int chunks = schedule_named(schedule).chunks;
    return plan_of(schedule, 2, 4, chunks);
}

// Times of all stages and messages differ.
Costs uneven(const Plan& plan, Ns link = 3) {
    Costs costs = uniform(plan.shape.stages, 100, 110, 90, link);
    for (int stage = 0; stage < plan.shape.stages; ++stage) {
        costs.stage[static_cast<std::size_t>(stage)].forward += 7 * stage;
        costs.stage[static_cast<std::size_t>(stage)].backward_weight += 11 * stage;
        costs.stage[static_cast<std::size_t>(stage)].update = 20 + stage;
        costs.stage[static_cast<std::size_t>(stage)].accumulate = 5;
        if (stage > 0)
            costs.edges.push_back({stage - 1, stage, 4, 6});
    }
    ClusterEdit(costs)->link.bandwidth = 1e9;
    costs.dispatch = 2;
    return costs;
}

// Appends the steps of another trace of the same plan, as those that come next.
void append_step(Trace& trace, const Trace& next) {
    std::vector<TraceEvent> all;
    const int step = 1 + std::accumulate(trace.events.begin(), trace.events.end(), 0,
                                         [](int most, const TraceEvent& event) { return std::max(most, event.step); });
    for (int device = 0; device < trace.devices; ++device) {
        for (const TraceEvent& event : trace.events)
            if (event.device == device)
                all.push_back(event);
        for (TraceEvent event : next.events)
            if (event.device == device) {
                event.step = step;
                all.push_back(event);
            }
    }
    trace.events = std::move(all);
}

class Replays : public testing::TestWithParam<std::string_view> {
protected:
    Plan plan_ = small_plan(GetParam());
    Costs costs_ = uneven(plan_);
};

TEST_P(Replays, APredictionIsItsOwnReplay) {
    costs_.busy = costs_.stage;
    for (StageCost& cost : costs_.busy)
        cost.forward += cost.forward / 3;
    for (const bool busy : {true, false}) {
        const Trace trace = simulate(plan_, costs_);
        EXPECT_EQ(mechanics_in(plan_, costs_, trace), Mechanics{});
        const ErrorParts parts = parts_of(plan_, costs_, trace, trace);
        EXPECT_EQ(parts.mechanics, Mechanics{});
        EXPECT_EQ(parts.measured, parts.predicted);
        expect_sums(parts);
        if (!busy) {  // else tasks of one kind take more or less, as their neighbours do
            EXPECT_EQ(parts.jitter, 0);
            EXPECT_EQ(parts.costs, 0);
        }
        costs_.busy.clear();
    }
}

// Random times, with gaps before them that no rule asks for.
TEST_P(Replays, PartsAddUp) {
    Random random(7);
    const Trace predicted = simulate(plan_, costs_);
    Costs other = costs_;
    for (int round = 0; round < 20; ++round) {
        for (StageCost& cost : other.stage)
            for (Ns* time : {&cost.forward, &cost.backward, &cost.backward_input, &cost.backward_weight, &cost.update})
                *time = pick(random, 1, 300);
        Trace measured = simulate(plan_, other);
        measured.label = "measured";
        if (!plan_.asynchronous) {
            append_step(measured, simulate(plan_, costs_));
            append_step(measured, simulate(plan_, other));
        }
        for (TraceEvent& event : measured.events)
            if (!is_transfer(event.task.op) && pick(random, 0, 2) == 0)
                event.end -= pick(random, 0, static_cast<int>(event.end - event.start));
        const Trace calibrated = simulate(plan_, other);
        expect_sums(parts_of(plan_, costs_, predicted, measured));
        const ErrorParts parts = parts_of(plan_, costs_, predicted, measured, &calibrated);
        expect_sums(parts);
        EXPECT_EQ(*parts.drift, parts.predicted - parts_of(plan_, costs_, calibrated, measured).predicted);
        EXPECT_EQ(parts.mechanics.rules, 0);  // no task begins too early
        expect_sums(parts_of(plan_, costs_, measured, predicted));
    }
}

TEST_P(Replays, ASlowerTaskIsNamed) {
    const Trace predicted = simulate(plan_, costs_);
    for (int stage = 0; stage < plan_.shape.stages; ++stage) {
        Costs slower = costs_;
        slower.stage[static_cast<std::size_t>(stage)].forward += 50;
        const ErrorParts parts = parts_of(plan_, costs_, predicted, simulate(plan_, slower));
        EXPECT_EQ(parts.mechanics, Mechanics{});
        EXPECT_EQ(parts.jitter, 0);
        EXPECT_EQ(parts.costs, parts.predicted - parts.measured);
        const CostPart expected{Op::Forward, stage, parts.costs, 102 + 7 * stage, 152 + 7 * stage};
        EXPECT_EQ(std::count(parts.by_task.begin(), parts.by_task.end(), expected), 1);
        if (!plan_.asynchronous) {  // else a step is as long as the slowest stage, whichever that is
            EXPECT_EQ(parts.by_task.front(), expected);
            EXPECT_LT(parts.costs, 0);
        }
    }
}

TEST_P(Replays, ThePlanIsInItsTrace) {
    const Trace trace = simulate(plan_, costs_);
    const Plan found = plan_of(trace);
    EXPECT_EQ(found.order, plan_.order);
    EXPECT_EQ(found.shape.microbatches, plan_.shape.microbatches);
    EXPECT_EQ(found.shape.updates(), plan_.shape.updates());
    const TransferMode mode = mode_of(costs_);
    EXPECT_EQ(mechanics_of(found, check(found, mode), mode, trace), Mechanics{});

    Trace foreign = trace;  // as a program without lists writes it
    std::stable_sort(foreign.events.begin(), foreign.events.end(), [](const TraceEvent& a, const TraceEvent& b) {
        return std::pair(a.start, a.end) < std::pair(b.start, b.end);
    });
    put_in_list_order(foreign, "foreign.json");
    EXPECT_EQ(plan_of(foreign).order, plan_.order);
}

INSTANTIATE_TEST_SUITE_P(Schedules, Replays, testing::ValuesIn(names_of_schedules()), [](const auto& named) {
    std::string name(named.param);
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

// Two devices with a stage each, one micro-batch: 0F0 from 0 to 100, 1F0 and 1B0 to 400, 0B0 to 600.
class Gaps : public testing::Test {
protected:
    Plan plan_ = plan_of("naive", 2, 1);
    Costs costs_ = uniform(2, 100, 100, 100);
    Trace trace_ = simulate(plan_, costs_);

    // Moves everything that starts at `from` or later.
    void delay(Ns from, Ns by) {
        for (TraceEvent& event : trace_.events)
            if (event.start >= from && !is_transfer(event.task.op)) {
                event.start += by;
                event.end += by;
            } else if (event.start >= from + 1) {
                event.start += by;
                event.end += by;
            }
    }
    Mechanics mechanics() const { return mechanics_in(plan_, costs_, trace_); }
};

TEST_F(Gaps, AfterTheTaskBeforeAreDispatch) {
    delay(200, 9);  // 1B0, and what follows
    EXPECT_EQ(mechanics(), (Mechanics{.dispatch = -9}));
}

TEST_F(Gaps, AfterAMessageAreHandOver) {
    delay(100, 9);  // 1F0
    EXPECT_EQ(mechanics(), (Mechanics{.hand_over = -9}));
}

TEST_F(Gaps, ATaskThatBeginsTooEarlyBreaksTheRules) {
    for (TraceEvent& event : trace_.events)
        if (event.task == Task{Op::Backward, 0, 0}) {
            event.start -= 9;
            event.end -= 9;
        } else if (event.task == Task{Op::Update, 0, 0}) {
            event.start = event.end -= 9;
        }
    EXPECT_EQ(mechanics(), (Mechanics{.rules = 9}));
}

// The holders of a stage begin and wait for each other at S, the sum of gradients.
TEST(Replay, ASumCountsFromItsLastHolder) {
    const Plan plan = plan_of("gpipe", Replicas{2}, 2);
    Costs costs = uniform(1, 100, 100, 100);
    costs.stage[0].sum_gradients = 40;
    Trace trace = simulate(plan, costs);
    trace.label = "measured";
    const Ns step = 340;
    for (TraceEvent& event : trace.events) {
        if (event.device == 1) {  // begins later
            event.start += 6;
            event.end += 6;
        } else if (event.task.op == Op::SumGradients) {
            event.end += 6;  // began before, and waited
        } else if (event.task.op == Op::Update) {
            event.start = event.end = step + 6;
        }
    }
    EXPECT_EQ(mechanics_in(plan, costs, trace), (Mechanics{.begin = -6}));
}

// One task after the other: then the mean of all makes the step that one slow task makes.
TEST(Replay, OneSlowTaskIsBlamedOnItsKind) {
    const Plan plan = plan_of("naive", 2, 4);
    const Costs costs = uniform(2, 100, 100, 100);
    const Trace predicted = simulate(plan, costs);
    Trace measured = predicted;
    for (TraceEvent& event : measured.events)
        if (event.start >= 100) {
            event.start += 30;
            event.end += 30;
        } else if (event.task == Task{Op::Forward, 0, 0}) {
            event.end += 30;
        }
    const ErrorParts parts = parts_of(plan, costs, predicted, measured);
    EXPECT_EQ(parts.mechanics, Mechanics{});
    EXPECT_EQ(parts.jitter, 0);
    EXPECT_EQ(parts.costs, -30);
    EXPECT_EQ(parts.by_task.front(), (CostPart{Op::Forward, 0, -30, 100, 107}));  // one of four
    EXPECT_FALSE(parts.drift);
    expect_sums(parts);
}

TEST(Replay, RefusesEventsThatAreNotTheList) {
    const Plan plan = small_plan("gpipe");
    const Costs costs = uneven(plan);
    Trace trace = simulate(plan, costs);
    std::swap(trace.events[0], trace.events[1]);
    expect_says(refusal([&] { (void)mechanics_in(plan, costs, trace); }), {"step 0 of device 0", "not the list"});
    trace = simulate(plan, costs);
    trace.events.pop_back();
    expect_says(refusal([&] { (void)mechanics_in(plan, costs, trace); }), {"step 0 of device 1 ends before"});
}

// Four devices of a host, which issues one call at a time.
TEST(Replay, KnowsSharedDispatchers) {
    Random random(11);
    int waited = 0;  // plans that would have mechanics otherwise
    for (const std::string_view name : names_of_schedules()) {
        const Plan plan = plan_of(name, 4, 8, schedule_named(name).chunks);
        Costs costs = uneven(plan);
        ClusterEdit(costs)->dispatch_by_host = true;
        for (const std::vector<int>& hosts : {std::vector<int>{}, {0, 0, 1, 1}, {0, 1, 1, 0}}) {
            ClusterEdit(costs)->host = hosts;
            costs.dispatch = pick(random, 1, 60);
            const Trace trace = simulate(plan, costs);
            EXPECT_EQ(mechanics_of(plan, graph_alone(plan), mode_of(costs), trace, costs), Mechanics{}) << name;
            waited += mechanics_of(plan, graph_alone(plan), mode_of(costs), trace) != Mechanics{};
            Costs other = costs;
            for (StageCost& cost : other.stage)
                cost.forward += pick(random, 0, 50);
            const Trace measured = simulate(plan, other);
            const ErrorParts parts =
                error_parts(plan, graph_alone(plan), mode_of(costs), trace, nullptr, measured, costs);
            expect_sums(parts);
            EXPECT_EQ(parts.mechanics, Mechanics{}) << name;
            const Explanation all = explanation_of(plan, graph_alone(plan), mode_of(costs), trace, costs);
            const Explanation predicted = Simulator(plan, mode_of(costs)).explain(costs);
            for (std::size_t device = 0; device < 4; ++device)
                EXPECT_EQ(all.idle[device].dispatcher, predicted.idle[device].dispatcher) << name << ' ' << device;
        }
    }
    EXPECT_GT(waited, 40);
}

// Waits of tasks for calls, which the simulator models, are no mechanics. Time that passes besides is.
TEST(Replay, TellsWaitsForCallsFromOtherTime) {
    const Plan plan = plan_of("gpipe", 2, 2);
    Costs costs = uniform(2, 10, 10, 10);
    costs.dispatch = 4;
    ClusterEdit(costs)->dispatch_by_host = true;
    Trace trace = simulate(plan, costs);
    for (TraceEvent& event : trace.events)
        if (event.end > 70) {  // the last two backwards and all that follows
            event.start += event.start >= 70 ? 5 : 0;
            event.end += 5;
        }
    trace.label = "measured";
    const Mechanics mechanics = mechanics_of(plan, graph_alone(plan), mode_of(costs), trace, costs);
    EXPECT_EQ(mechanics.total(), -5);
    EXPECT_EQ(mechanics.rules, 0);
}

// Two stages, 375 kB at 2.75 GB/s, receives deferred: with the mean times of both stages the step is that of their
// prediction, whatever the messages of the trace waited for their receivers.
TEST(Replay, EqualStagesDoNotKeepWaitsForReceivers) {
    TransferMode mode;
    mode.receive = TransferMode::Receive::Deferred;
    const Plan plan = plan_of("1f1b", 2, 6, 1, {.transfers = mode});
    const auto costs_of = [&](const std::vector<StageCost>& stages) {
        Costs costs = uniform(2, 1, 1, 1);
        costs.stage = stages;
        costs.edges = {{0, 1, 375'000, 375'000}};
        ClusterEdit(costs)->link.bandwidth = 2.75e9;
        return costs;
    };
    const auto stage = [](Ns forward, Ns input, Ns weight) {
        StageCost cost;
        cost.forward = forward, cost.backward_input = input, cost.backward_weight = weight;
        cost.backward = input + weight;
        return cost;
    };
    const Costs uneven = costs_of({stage(76'000, 216'000, 12'000), stage(36'000, 8'000, 40'000)});
    const Costs level = costs_of({stage(56'000, 112'000, 26'000), stage(56'000, 112'000, 26'000)});
    Trace trace = simulate(plan, uneven, mode);
    EXPECT_EQ(metrics_of(trace).step_time, 2'286'184);
    const Ns expected = metrics_of(simulate(plan, level, mode)).step_time;
    EXPECT_EQ(mechanics_of(plan, check(plan, mode), mode, trace), Mechanics{});
    EXPECT_EQ(explanation_of(plan, check(plan, mode), mode, trace).balanced, expected);
    EXPECT_LT(expected, 2'180'000);
    trace.label = "measured";
    EXPECT_EQ(mechanics_of(plan, check(plan, mode), mode, trace), Mechanics{});
    EXPECT_EQ(explanation_of(plan, check(plan, mode), mode, trace).balanced, expected);
}

}  // namespace
}  // namespace pw
