// Orders that count recomputation: their times and memory against the simulator's, their bounds against random orders,
// and auto against the named schedules.
#include "schedules/orders/justification.h"
#include "schedules/orders/list_scheduling.h"
#include "schedules/orders/order_bound.h"
#include "schedules/orders/order_model.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/orders_by_costs.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace pw {
namespace {

struct RecomputedPipeline {
    RecomputedPipeline(Random& random, const Schedule& of, int p, int m)
        : schedule(of), shape(placed(of, shape_of(of, p, m, of.chunks))), costs(uniform(shape.stages, 1, 1, 1)) {
        for (StageCost& stage : costs.stage) {
            stage.forward = pick(random, 50, 150);
            stage.recompute = pick(random, 40, stage.forward);
            stage.backward_input = pick(random, 50, 150);
            stage.backward_weight = pick(random, 30, 120);
            stage.backward = stage.backward_input + stage.backward_weight - pick(random, 0, 10);
            stage.accumulate = pick(random, 0, 5);
        }
        ClusterEdit(costs)->link.latency = pick(random, 0, 3) * 25;
        for (StageBytes& bytes : costs.bytes)
            bytes = {.data = pick(random, 1, 8),
                     .until_input = pick(random, 0, 40),
                     .until_weight = pick(random, 0, 40),
                     .first_until_again = pick(random, 0, 3),
                     .first_until_input = pick(random, 0, 3),
                     .first_until_weight = pick(random, 0, 3)};
        for (int stage = 0; stage < shape.stages; ++stage)
            if (pick(random, 0, 2) > 0)
                options.recompute.stages.push_back(stage);
    }

    OrderCosts order_costs(Bytes memory) const {
        return pw::order_costs(shape, costs, std::vector<Bytes>(static_cast<std::size_t>(shape.devices), memory),
                               options.recompute);
    }
    Metrics simulated(std::vector<Tasks> order) const {
        return metrics_of(simulate(with_order(schedule, shape, std::move(order), options).plan, costs));
    }

    const Schedule& schedule;
    Shape shape;
    Costs costs;
    PlanOptions options;
};

Bytes peak_memory(const Metrics& metrics) {
    Bytes most = 0;
    for (const DeviceMetrics& device : metrics.devices)
        most = std::max(most, device.peak_memory);
    return most;
}

// The least memory in which a micro-batch goes through all devices alone.
Bytes memory_of_one(const RecomputedPipeline& of) {
    const OrderCosts costs = of.order_costs(1);
    const OrderModel model({of.shape, {}, &costs});
    Bytes most = 0;
    for (int device = 0; device < model.devices(); ++device)
        most = std::max(most, model.room(device)[1]);
    return most;
}

TEST(RecomputedOrders, TakeTheTimeAndTheMemoryOfTheSimulator) {
    Random random(41);
    int tight = 0, later = 0;
    for (int round = 0; round < rounds(60); ++round) {
        const Schedule& schedule = schedule_by_costs(round);
        const int p = devices_for(schedule, pick(random, 1, 5)), m = pick(random, 2, 10);
        const RecomputedPipeline one(random, schedule, p, m);
        const Bytes memory = memory_of_one(one) * pick(random, 10, 40) / 10;
        const OrderCosts costs = one.order_costs(memory);
        ScheduleOptions options;
        const OrderModel model({one.shape, options, &costs});
        OrderTimer timer(model);
        const StepTimes least = least_times(model);
        const auto check = [&](const PassLists& lists, const char* from) {
            for (const std::vector<OrderPass>& list : lists)
                ASSERT_GE(std::ssize(list), 2 * m * schedule.chunks) << from << " round " << round;
            ASSERT_TRUE(fits(model, lists)) << from << " round " << round;
            const StepTimes times = timer.times(lists);
            const Metrics metrics = one.simulated(model.order_of(lists));
            if (schedule.placement.place != place_in_both_directions) {  // there, messages wait for each other
                EXPECT_EQ(times.step, metrics.step_time) << from << " round " << round;
                EXPECT_EQ(times.span, metrics.span) << from << " round " << round;
            }
            EXPECT_LE(peak_memory(metrics), memory) << from << " round " << round;
            EXPECT_LE(least.step, metrics.step_time) << from << " round " << round;
            EXPECT_LE(least.span, metrics.span) << from << " round " << round;
            tight += 10 * peak_memory(metrics) > 9 * memory ? 1 : 0;
        };
        for (int k = 0; k < 6; ++k) {
            const PassLists lists = scheduled(model, any_rules(random));
            check(lists, "by rules");
            const PassLists filled = refilled(model, {.patience = 0.25 * pick(random, 0, 4)}, lists);
            ASSERT_FALSE(filled.empty()) << round;
            check(filled, "filled");
            if (const PassLists after = justified(model, timer, lists, Aim::Step); !after.empty()) {
                later += after == lists ? 0 : 1;
                check(after, "justified");
            }
        }
    }
    EXPECT_GT(tight, rounds(60));
    EXPECT_GT(later, rounds(60));
}

// The simulator counts more memory, such as tensors that wait to be read: what it says fits is not refused.
TEST(RecomputedOrders, FitWhereTheSimulatorSaysSo) {
    Random random(42);
    for (int round = 0; round < rounds(100); ++round) {
        const Schedule& schedule = schedule_by_costs(round);
        const int p = devices_for(schedule, pick(random, 1, 5)), m = pick(random, 2, 10);
        RecomputedPipeline one(random, schedule, p, m);
        for (StageBytes& bytes : one.costs.bytes)
            bytes.gradient_kept = pick(random, 0, 2) * pick(random, 0, 20);
        for (int stage = 0; stage + 1 < one.shape.stages; ++stage) {
            EdgeBytes edge{stage, stage + 1, pick(random, 0, 20), pick(random, 0, 20)};
            edge.forward_until_weight = pick(random, 0, 2) == 0;
            edge.forward_until_input = pick(random, 0, 1) == 0;
            edge.backward_until_weight = pick(random, 0, 1) == 0;
            one.costs.edges.push_back(edge);
        }
        ScheduleOptions options;
        options.activations = pick(random, 1, 2 * p);
        const OrderCosts unlimited = one.order_costs(std::numeric_limits<Bytes>::max());
        const PassLists lists = scheduled(OrderModel({one.shape, options, &unlimited}), any_rules(random));
        const Metrics metrics = one.simulated(OrderModel({one.shape, options, &unlimited}).order_of(lists));
        OrderCosts limited = unlimited;
        for (std::size_t device = 0; device < limited.memory.size(); ++device)
            limited.memory[device] = metrics.devices[device].peak_memory;
        EXPECT_TRUE(fits(OrderModel({one.shape, options, &limited}), lists)) << schedule.name << " round " << round;
    }
}

TEST(RecomputedOrders, AreNeverLongerThanThoseOfSchedulesThatFit) {
    Random random(43);
    for (int round = 0; round < std::max(3, rounds(6)); ++round) {
        const Schedule& schedule = schedule_by_costs(round);
        const int p = devices_for(schedule, pick(random, 2, 5)), m = pick(random, 4, 12);
        const RecomputedPipeline one(random, schedule, p, m);
        for (const int tenths : {10, 15, 25, 60}) {
            const Bytes memory = memory_of_one(one) * tenths / 10;
            OrderCosts costs = one.order_costs(memory);
            costs.simulate = [&](const std::vector<Tasks>& order) {
                const Metrics metrics = one.simulated(order);
                return SimulatedOrder{{metrics.makespan, metrics.span}, peak_memory(metrics) <= memory};
            };
            const Plan plan = ordered(schedule, one.shape, one.options, &costs).plan;
            const Metrics metrics = metrics_of(simulate(plan, one.costs));
            EXPECT_LE(peak_memory(metrics), memory) << round;
            const OrderModel model({one.shape, {}, &costs});
            EXPECT_LE(least_times(model, {metrics.step_time, metrics.span}).step, metrics.step_time) << round;
            for (const Schedule& other : schedules()) {
                if (other.needs_costs || other.asynchronous() || !other.trains)
                    continue;
                const std::optional<Plan> named = try_plan(other, shape_of(other, p, m, schedule.chunks), one.options);
                if (!named || named->shape.stages != one.shape.stages)
                    continue;
                bool alike = true;
                for (int stage = 0; stage < one.shape.stages; ++stage)
                    alike = alike && named->shape.devices_of(stage) == one.shape.devices_of(stage);
                const Metrics own = metrics_of(simulate(*named, one.costs));
                if (alike && peak_memory(own) <= memory)
                    EXPECT_LE(metrics.step_time, own.step_time) << other.name << " round " << round;
            }
        }
    }
}

}  // namespace
}  // namespace pw
