// The search through all orders of a small plan. Its answers for lines and a V are also those of exhaustive searches in
// test_auto.cpp and test_auto_v.cpp; here they hold together.
#include "schedules/orders/all_orders.h"
#include "schedules/orders/list_scheduling.h"
#include "tests/support/dice.h"
#include "tests/support/random_passes.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

namespace pw {
namespace {

constexpr int kTries = 200'000;

// Draws lines and Vs in turn, with one or two stages on a device.
Shape drawn_shape(Random& random, int round, int most_microbatches) {
    const bool v = round % 2 == 1;
    const Schedule& schedule = schedule_named(v ? "auto-v" : "auto");
    const int p = pick(random, 1, 3), m = pick(random, 1, most_microbatches);
    return placed(schedule, shape_of(schedule, p, m, v || round % 4 == 2 ? 2 : 1));
}

OrderCosts costs_without_limits(const Shape& shape, const Costs& costs) {
    return order_costs(shape, costs,
                       std::vector<Bytes>(static_cast<std::size_t>(shape.devices), std::numeric_limits<Bytes>::max()));
}

TEST(AllOrders, FindsAnOrderUntilNoneIsShorter) {
    Random random(12);
    int proven = 0, all = 0;
    for (int round = 0; round < rounds(15); ++round) {
        const Shape shape = drawn_shape(random, round, 4);
        const int p = shape.devices, m = shape.microbatches;
        Costs costs = uniform(shape.stages, 1, 1, 1, pick(random, 0, 4));
        draw_passes(random, costs);
        OrderCosts own = costs_without_limits(shape, costs);
        for (auto& [holder, of_classes] : own.times) {
            of_classes.front().added_to_backward = of_classes.front().added_to_weight = pick(random, 0, 1);
            own.updates[holder] = pick(random, 0, 3);
        }
        ScheduleOptions options;
        options.activations = pick(random, 1, p + 1);
        const OrderModel model({shape, options, &own});
        OrderTimer timer(model);
        const StepTimes start = timer.times(scheduled(model, {}));
        for (const Aim aim : {Aim::Step, Aim::Span}) {
            Ns least = main_time(start, aim);
            AllOrdersAnswer answer = search_all_orders(model, aim, least, kTries);
            ASSERT_FALSE(answer.none) << "an order takes that little, round " << round;
            while (!answer.lists.empty()) {
                EXPECT_TRUE(fits(model, answer.lists)) << round;
                for (std::size_t device = 0; device < answer.lists.size(); ++device)
                    EXPECT_EQ(std::ssize(answer.lists[device]),
                              3 * m * std::ssize(model.stages_on(static_cast<int>(device))));
                const Ns time = main_time(timer.times(answer.lists), aim);
                if (aim == Aim::Span && time > least)
                    break;  // a device of that order starts later than it can
                ASSERT_LE(time, least) << round;
                least = time;
                answer = search_all_orders(model, aim, least - 1, kTries);
            }
            ++all;
            proven += answer.none ? 1 : 0;
            EXPECT_TRUE(search_all_orders(model, aim, least / 2, kTries).none) << round;
        }
    }
    EXPECT_GT(10 * proven, 8 * all);
}

// Draws an order: adds passes one by one, each after the passes that it depends on.
PassLists drawn_order(Random& random, const OrderModel& model) {
    PassLists lists(static_cast<std::size_t>(model.devices()));
    std::vector<std::array<int, 3>> done(static_cast<std::size_t>(model.stages()), {0, 0, 0});
    for (;;) {
        std::vector<std::pair<int, int>> next;  // stage and kind
        for (int stage = 0; stage < model.stages(); ++stage)
            for (int kind = 0; kind < 3; ++kind) {
                const bool is_last = stage + 1 == model.stages();
                const int before = kind == 0 ? (stage == 0 ? model.microbatches() : done[stage - 1][0])
                                   : kind == 1
                                       ? std::min(done[stage][0], is_last ? model.microbatches() : done[stage + 1][1])
                                       : done[stage][1];
                if (done[stage][kind] < before)
                    next.emplace_back(stage, kind);
            }
        if (next.empty())
            return lists;
        const auto [stage, kind] = next[static_cast<std::size_t>(pick(random, 0, static_cast<int>(next.size()) - 1))];
        const int number = model.number(stage, done[stage][kind]++, kind);
        lists[static_cast<std::size_t>(model.device_of(number))].push_back(OrderPass(number));
    }
}

// With passes of 0 ns a device may have passes left but no work, and a waiting device may start at the time when a pass
// of another device starts.
TEST(AllOrders, AreNotExcludedWherePassesTakeNoTime) {
    Random random(21);
    for (int round = 0; round < rounds(300); ++round) {
        const Shape shape = drawn_shape(random, round, 3);
        Costs costs = uniform(shape.stages, 1, 1, 1, pick(random, 0, 1));
        for (StageCost& stage : costs.stage) {
            const auto time = [&] { return std::max<Ns>(0, pick(random, -2, 3)); };
            stage.forward = time();
            stage.backward_input = time();
            stage.backward_weight = time();
            stage.backward = stage.backward_input + stage.backward_weight;
        }
        const OrderCosts own = costs_without_limits(shape, costs);
        ScheduleOptions options;
        options.activations = pick(random, 1, shape.microbatches);
        const OrderModel model({shape, options, &own});
        OrderTimer timer(model);
        for (const Aim aim : {Aim::Step, Aim::Span}) {
            Ns least = std::numeric_limits<Ns>::max();
            for (int order = 0; order < 100; ++order) {
                const PassLists drawn = drawn_order(random, model);
                if (fits(model, drawn))
                    least = std::min(least, main_time(timer.times(drawn), aim));
            }
            ASSERT_FALSE(search_all_orders(model, aim, least, kTries).none)
                << "an order takes " << least << ", round " << round;
        }
    }
}

// Micro-batches of unequal length, and of both directions, have other orders than those that are tried.
TEST(AllOrders, AreOfEqualMicroBatchesInOneDirection) {
    const auto answer_of = [](const char* name, int m, std::vector<MicroBatchLength> lengths) {
        const Schedule& schedule = schedule_named(name);
        const Shape shape = placed(schedule, shape_of(schedule, 2, m));
        Costs costs = uniform(2, 3, 3, 3);
        costs.lengths = std::move(lengths);
        const OrderCosts own = order_costs(shape, costs, {1 << 20, 1 << 20});
        const OrderModel model({shape, {}, &own});
        return search_all_orders(model, Aim::Step, 1000, kTries);
    };
    EXPECT_FALSE(answer_of("auto", 2, {}).lists.empty());
    EXPECT_TRUE(answer_of("auto", 2, {{1, 1, 1, 1}, {2, 2, 2, 2}}).lists.empty());
    EXPECT_TRUE(answer_of("auto-bidirectional", 2, {}).lists.empty());
    EXPECT_TRUE(answer_of("auto", 40, {}).lists.empty()) << "too many passes";
}

}  // namespace
}  // namespace pw
