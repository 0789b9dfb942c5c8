// Times from one pass over a plan against those from a queue of events.
#include "schedules/schedule.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <algorithm>

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

TEST(Recurrence, TimesAreThoseOfTheEvents) {
    Random random(2026);
    int compared = 0;
    for (int round = 0; round < rounds(4000); ++round) {
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
        ++compared;
    }
    EXPECT_GT(compared, rounds(2000));
}

}  // namespace
}  // namespace pw
