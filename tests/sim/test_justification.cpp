// Orders by list scheduling whose passes are then justified, or moved by the tabu search. Times and room are found
// anew, pass by pass.
#include "schedules/orders/justification.h"
#include "schedules/orders/list_scheduling.h"
#include "schedules/orders/tabu_search.h"
#include "tests/support/dice.h"
#include "tests/support/random_passes.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string_view>

namespace pw {
namespace {

// Stages one after the other, F, I and W apart, messages that only have a latency.
struct Pipeline {
    Pipeline(std::string_view name, int devices, int microbatches, int room, Random& random)
        : schedule(schedule_named(name)), latency(pick(random, 0, 5)), activations(room) {
        shape = placed(schedule, shape_of(schedule, devices, microbatches, name == "auto-v" ? 2 : 1));
        Costs costs = uniform(shape.stages, 1, 1, 1, latency);
        passes = draw_passes(random, costs);
        order = order_costs(shape, costs,
                            std::vector<Bytes>(static_cast<std::size_t>(devices), std::numeric_limits<Bytes>::max()));
        options.activations = activations;
    }

    const Schedule& schedule;
    Shape shape;
    Ns latency;
    int activations;
    std::vector<std::array<Ns, 3>> passes;
    OrderCosts order;
    ScheduleOptions options;
};

// By device: when its last pass ends, and how long after its first one began. Empty if it never ends.
struct Ends {
    Ns last = 0, span = 0;
};
Ends ends_of(const Pipeline& of, const OrderModel& model, const PassLists& lists) {
    std::vector<Ns> end(static_cast<std::size_t>(model.passes()), -1);
    std::vector<std::size_t> at(lists.size(), 0);
    std::vector<Ns> free(lists.size(), 0), begun(lists.size(), -1);
    for (bool moves = true; moves;) {
        moves = false;
        for (std::size_t device = 0; device < lists.size(); ++device)
            for (; at[device] < lists[device].size(); moves = true, ++at[device]) {
                const int number = lists[device][at[device]].number(), stage = model.stage_of(number),
                          kind = number % 3;
                const int mb = model.microbatch_of(number);
                const auto after = [&](int from, int of_kind) {
                    const Ns sent = end[model.number(from, mb, of_kind)];
                    return sent < 0 ? Ns{-1}
                                    : sent + (of.shape.server_of(from, 0) == static_cast<int>(device) ? 0 : of.latency);
                };
                Ns ready = kind > 0 ? after(stage, kind - 1) : 0;
                if (kind == 0 && stage > 0)
                    ready = after(stage - 1, 0);
                if (kind == 1 && stage + 1 < of.shape.stages) {
                    const Ns next = after(stage + 1, 1);
                    ready = next < 0 || ready < 0 ? -1 : std::max(ready, next);
                }
                if (ready < 0)
                    break;
                const Ns start = std::max(free[device], ready);
                begun[device] = begun[device] < 0 ? start : begun[device];
                free[device] = end[number] = start + of.passes[stage][kind];
            }
    }
    Ends ends;
    for (std::size_t device = 0; device < lists.size(); ++device) {
        EXPECT_EQ(at[device], lists[device].size()) << "device " << device << " waits forever";
        ends.last = std::max(ends.last, free[device]);
        ends.span = std::max(ends.span, free[device] - begun[device]);
    }
    return ends;
}

int most_held(const std::vector<OrderPass>& list) {
    int held = 0, most = 0;
    for (const OrderPass pass : list) {
        held += pass.kind() == 0 ? 1 : pass.kind() == 2 ? -1 : 0;
        most = std::max(most, held);
    }
    return most;
}

TEST(Justification, KeepsThePassesAndTheRoomAndNeverLengthens) {
    Random random(1);
    int shorter = 0;
    const int all = rounds(400);
    for (int k = 0; k < all; ++k) {
        const int devices = pick(random, 1, 5), room = pick(random, 1, 2 * devices);
        const Pipeline one(k % 2 == 0 ? "auto" : "auto-v", devices, pick(random, 1, 10), room, random);
        const OrderModel model({one.shape, one.options, &one.order});
        OrderTimer timer(model);
        const OrderRules rules{.ahead = 0.5 * pick(random, 1, 5),
                               .forward_first = pick(random, 0, 1) == 1,
                               .patience = 0.25 * pick(random, 0, 4),
                               .stages = static_cast<OrderRules::Stages>(pick(random, 0, 3))};
        const PassLists before = scheduled(model, rules);
        for (const Aim aim : {Aim::Step, Aim::Span}) {
            const PassLists after = justified(model, timer, before, aim);
            ASSERT_EQ(after.size(), before.size()) << k;
            for (std::size_t device = 0; device < before.size(); ++device) {
                EXPECT_TRUE(std::ranges::is_permutation(after[device], before[device])) << k;
                EXPECT_LE(most_held(after[device]), room * std::ssize(model.stages_on(static_cast<int>(device)))) << k;
            }
            const Ends old = ends_of(one, model, before), now = ends_of(one, model, after);
            const Ns by_aim = aim == Aim::Step ? now.last : now.span, least = aim == Aim::Step ? old.last : old.span;
            EXPECT_LE(by_aim, least) << k;
            shorter += by_aim < least ? 1 : 0;
        }
    }
    EXPECT_GT(shorter, all / 5) << "of " << 2 * all;
}

TEST(TabuSearch, KeepsThePassesAndTheRoomAndNeverLengthens) {
    Random random(2);
    int shorter = 0;
    const int all = rounds(200);
    for (int k = 0; k < all; ++k) {
        const int devices = pick(random, 1, 5), room = pick(random, 1, 2 * devices);
        const Pipeline one(k % 2 == 0 ? "auto" : "auto-v", devices, pick(random, 1, 8), room, random);
        const OrderModel model({one.shape, one.options, &one.order});
        OrderTimer timer(model);
        const PassLists before = scheduled(model, {.ahead = 0.5 * pick(random, 1, 5), .patience = 0.5});
        for (const Aim aim : {Aim::Step, Aim::Span}) {
            const TimedOrder found = tabu_searched(model, timer, {before, timer.times(before)}, {0, 0}, aim, 150);
            for (std::size_t device = 0; device < before.size(); ++device) {
                EXPECT_TRUE(std::ranges::is_permutation(found.lists[device], before[device])) << k;
                EXPECT_LE(most_held(found.lists[device]), room * std::ssize(model.stages_on(static_cast<int>(device))))
                    << k;
            }
            const Ends old = ends_of(one, model, before), now = ends_of(one, model, found.lists);
            EXPECT_EQ(found.times.step, now.last) << k;
            EXPECT_EQ(found.times.span, now.span) << k;
            const Ns by_aim = aim == Aim::Step ? now.last : now.span, least = aim == Aim::Step ? old.last : old.span;
            EXPECT_LE(by_aim, least) << k;
            shorter += by_aim < least ? 1 : 0;
        }
    }
    EXPECT_GT(shorter, all / 2) << "of " << 2 * all;
}

}  // namespace
}  // namespace pw
