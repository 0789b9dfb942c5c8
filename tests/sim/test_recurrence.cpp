// Times from one pass over a plan against those from a queue of events, and against the least that fulfil every rule.
#include "schedules/schedule.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/relaxed_times.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace pw {
namespace {

TransferMode random_mode(Random& random) {
    TransferMode mode;
    mode.communicator = static_cast<TransferMode::Communicator>(pick(random, 0, 2));
    mode.receive = static_cast<TransferMode::Receive>(pick(random, 0, 1));
    mode.protocol = pick(random, 0, 1) ? TransferMode::Protocol::Rendezvous : TransferMode::Protocol::Eager;
    return mode;
}

Shape random_shape(Random& random, const Schedule& schedule) {
    Shape shape = shape_of(schedule, pick(random, 1, 6), pick(random, 1, 14));
    if (schedule.placement == Placement::Looped || schedule.placement == Placement::Any)
        shape.stages = shape.devices * pick(random, 1, 3);
    if (schedule.takes_replicas() && pick(random, 0, 2) == 0) {
        Replicas replicas;
        for (int stage = pick(random, 1, 4); stage > 0; --stage)
            replicas.push_back(pick(random, 1, 3));
        shape = shape_of(replicas, shape.microbatches);
    }
    if (schedule.updates == Updates::PerMiniBatch)
        shape.per_update = pick(random, shape.devices, 2 * shape.devices);
    shape.global_norm = !schedule.asynchronous() && pick(random, 0, 3) == 0;
    if (shape.stages > 2 && pick(random, 0, 3) == 0) {  // a skip past stages
        shape.edges.emplace();
        for (int stage = 1; stage < shape.stages; ++stage)
            shape.edges->push_back({stage - 1, stage});
        shape.edges->push_back({0, shape.stages - 1});
    }
    if (shape.stages > 1 && pick(random, 0, 3) == 0)
        shape.ties = {{0, shape.stages - 1}};
    return shape;
}

Costs random_costs(Random& random, const Shape& shape) {
    Costs costs;
    const int shortest = pick(random, 0, 1);
    for (int stage = 0; stage < shape.stages; ++stage) {
        StageCost& cost = costs.stage.emplace_back();
        for (Ns* time : {&cost.forward, &cost.backward, &cost.backward_input, &cost.backward_weight, &cost.recompute,
                         &cost.update, &cost.sum_gradients, &cost.accumulate})
            *time = pick(random, shortest, 20);
        costs.bytes.emplace_back();
        if (stage > 0)
            costs.edges.push_back({stage - 1, stage, pick(random, 0, 30), pick(random, 0, 30)});
    }
    if (shape.edges)
        costs.edges.push_back({0, shape.stages - 1, pick(random, 0, 30), pick(random, 0, 30)});
    if (pick(random, 0, 1))
        costs.last = costs.stage;
    costs.link = {.latency = pick(random, 0, 1) * pick(random, 0, 40), .bandwidth = 1e9 / pick(random, 1, 3)};
    if (pick(random, 0, 1))
        for (int device = 0; device < shape.devices; ++device)
            costs.speed.push_back(pick(random, 5, 20) * 0.1);
    costs.dispatch = pick(random, 0, 2);
    costs.sent_copies = pick(random, 0, 1) != 0;
    return costs;
}

void expect_least_times(const Plan& plan, const TransferMode& mode, const Costs& costs, const Trace& trace) {
    std::vector<Ns> durations;
    for (const TraceEvent& event : trace.events)
        durations.push_back(event.end - event.start);
    const RelaxedTimes least(plan, mode, costs.link.latency, durations);
    ASSERT_TRUE(least.fulfilled());
    for (std::size_t task = 0; task < trace.events.size(); ++task)
        ASSERT_EQ((TaskTime{trace.events[task].start, trace.events[task].end}), least.times()[task])
            << print(trace.events[task].task);
}

TEST(Recurrence, TimesAreThoseOfTheEventsAndTheLeastOfAll) {
    Random random(2026);
    int compared = 0;
    const int count = soaks() ? 200'000 : rounds(4000);
    for (int round = 0; round < count; ++round) {
        const Schedule& schedule = schedules()[static_cast<std::size_t>(pick(random, 0, std::ssize(schedules()) - 1))];
        PlanOptions options;
        options.transfers = random_mode(random);
        const Shape shape = random_shape(random, schedule);
        if (pick(random, 0, 2) == 0)
            options.recompute = {pick(random, 0, shape.stages - 1)};
        const TransferMode mode = options.transfers;
        Plan plan;
        try {
            plan = make_plan(schedule, shape, options);
        } catch (const Error&) {
            continue;  // the schedule has no such shape
        }
        const Costs costs = random_costs(random, plan.shape);
        TransferMode with_copies = mode;
        with_copies.sent_copies = keeps_copies(costs, mode.early_receive());
        Simulator simulator(plan, with_copies);
        const Trace expected = simulator.trace_by_events(costs);
        ASSERT_EQ(simulator.trace(costs), expected) << schedule.name << ' ' << print(mode) << " round " << round;
        expect_least_times(plan, with_copies, costs, expected);
        ASSERT_FALSE(HasFatalFailure()) << schedule.name << ' ' << print(mode) << " round " << round;
        ++compared;
    }
    EXPECT_GT(compared, count / 2);
}

}  // namespace
}  // namespace pw
