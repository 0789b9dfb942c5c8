// Lower bounds of orders against random orders of random costs: none may be shorter.
#include "schedules/orders/list_scheduling.h"
#include "schedules/orders/order_bound.h"
#include "schedules/orders/order_model.h"
#include "tests/support/dice.h"
#include "tests/support/orders_by_costs.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace pw {
namespace {

// Uneven stages, latencies, memory that I and W free in parts, micro-batches of any length.
Costs any_costs(Random& random, int stages, int m) {
    Costs costs = uniform(stages, 1, 1, 1, pick(random, 0, 3) * 20);
    const bool uneven = pick(random, 0, 2) > 0;
    const Bytes later = pick(random, 0, 4), all = std::max<Bytes>(later, pick(random, 1, 5));
    for (StageCost& stage : costs.stage) {
        const auto around = [&](Ns usual) { return uneven ? usual * pick(random, 5, 15) / 10 : usual; };
        stage.forward = around(100);
        stage.backward_input = around(100);
        stage.backward_weight = around(70);
        stage.backward = stage.backward_input + stage.backward_weight - pick(random, 0, 10);
    }
    for (StageBytes& bytes : costs.bytes) {
        bytes.until_weight = later;
        bytes.until_input = all - later;
    }
    for (int mb = 0; pick(random, 0, 3) == 0 && mb < m; ++mb) {
        const double length = 0.1 * pick(random, 5, 20);
        costs.lengths.push_back({length, length, length, length});
    }
    return costs;
}

TEST(OrderBound, IsNeverLongerThanAnOrder) {
    constexpr const char* kNames[] = {"auto", "auto-v", "auto-bidirectional"};
    Random random(6);
    int equal = 0;
    for (int round = 0; round < rounds(300); ++round) {
        const Schedule& schedule = schedule_named(kNames[round % 3]);
        const bool both = round % 3 == 2, looped = round % 6 == 3;
        const int p = both ? 2 * pick(random, 1, 3) : pick(random, 1, 6), m = pick(random, 2, 12);
        const int chunks = looped ? 2 : schedule.chunks;
        const Shape shape = placed(schedule, shape_of(schedule, p, m, chunks));
        const Costs costs = any_costs(random, shape.stages, m);
        const Bytes whole = costs.bytes[0].until_weight + costs.bytes[0].until_input;
        const bool bytes = pick(random, 0, 1) == 1;
        OrderCosts own =
            order_costs(shape, costs,
                        std::vector<Bytes>(static_cast<std::size_t>(p), bytes ? whole * chunks * pick(random, 1, 2 * p)
                                                                              : std::numeric_limits<Bytes>::max()));
        for (auto& [holder, of_classes] : own.times) {
            const Ns added = 15 * pick(random, 0, 1);
            for (OrderCosts::Times& times : of_classes)
                times.added_to_backward = times.added_to_weight = added;
            own.updates[holder] = 60 * pick(random, 0, 1);
        }
        ScheduleOptions options;
        options.activations = bytes ? 0 : pick(random, 1, 2 * p);
        const OrderModel model({shape, options, &own});
        const StepTimes least = least_times(model);
        OrderTimer timer(model);
        StepTimes found;
        for (int k = 0; k < 40; ++k) {
            const PassLists lists = scheduled(model, any_rules(random));
            ASSERT_TRUE(fits(model, lists)) << round;
            const StepTimes times = timer.times(lists);
            found = {std::min(found.step, times.step), std::min(found.span, times.span)};
        }
        EXPECT_LE(least.step, found.step) << schedule.name << " round " << round;
        EXPECT_LE(least.span, found.span) << schedule.name << " round " << round;
        equal += (least.step == found.step) + (least.span == found.span);
    }
    EXPECT_GT(equal, rounds(300) / 5);
}

}  // namespace
}  // namespace pw
