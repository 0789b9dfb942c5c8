// Orders by costs of two copies of the model in opposite directions, against every order of small instances.
#include "schedules/orders/order_bound.h"
#include "schedules/orders/order_costs.h"
#include "schedules/orders/order_model.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/combinations.h"
#include "tests/support/dice.h"
#include "tests/support/random_passes.h"
#include "tests/support/refusal.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

namespace pw {
namespace {

constexpr Ns kNever = std::numeric_limits<Ns>::max();

// A pass of a micro-batch: F, I or W of the stage on which the device serves it.
struct OwnPass {
    int microbatch, kind;
};
using List = std::vector<OwnPass>;

// Adds all lists of a device. Micro-batches of one direction keep their order, in F, in I and in W.
void add_lists(int m, int room, std::array<std::array<int, 3>, 2> done, List& list, std::vector<List>& all) {
    if (std::ssize(list) == 3 * m) {
        all.push_back(list);
        return;
    }
    const int held = done[0][0] + done[1][0] - done[0][2] - done[1][2];
    for (int direction = 0; direction < 2; ++direction)
        for (int kind = 0; kind < 3; ++kind) {
            const std::array<int, 3>& own = done[direction];
            const int served = (m + 1 - direction) / 2;
            if (kind == 0 ? own[0] == served || held == room : own[kind] == own[kind - 1])
                continue;
            auto next = done;
            ++next[direction][kind];
            list.push_back({2 * own[kind] + direction, kind});
            add_lists(m, room, next, list, all);
            list.pop_back();
        }
}

struct Line {
    std::vector<std::array<Ns, 3>> times;  // by stage
    Ns latency;

    int stages() const { return static_cast<int>(times.size()); }
};

// Returns the end of a step with these lists, or nothing if devices wait forever.
std::optional<Ns> end_of(const std::vector<const List*>& lists, const Line& line, int m) {
    const int p = line.stages();
    std::vector<Ns> ends(static_cast<std::size_t>(3 * p * m), kNever), free(static_cast<std::size_t>(p), 0);
    const auto end_at = [&](int stage, int mb, int kind) -> Ns& { return ends[3 * (stage * m + mb) + kind]; };
    std::vector<std::size_t> next(static_cast<std::size_t>(p), 0);
    for (bool runs = true; runs;) {
        runs = false;
        for (int device = 0; device < p; ++device)
            for (; next[device] < lists[device]->size(); ++next[device]) {
                const auto& [mb, kind] = (*lists[device])[next[device]];
                const int stage = mb % 2 == 0 ? device : p - 1 - device;
                const int from = kind == 0 ? stage - 1 : kind == 1 && stage + 1 < p ? stage + 1 : -1;
                const Ns input = from < 0 ? 0 : end_at(from, mb, kind);
                if (input == kNever)
                    break;
                free[device] = std::max(free[device], from < 0 ? 0 : input + line.latency) + line.times[stage][kind];
                end_at(stage, mb, kind) = free[device];
                runs = true;
            }
    }
    if (std::ranges::find(ends, kNever) != ends.end())
        return std::nullopt;
    return std::ranges::max(free);
}

Ns least_end(const Line& line, const std::vector<List>& all, int m) {
    Ns least = kNever;
    for_each_combination(line.times.size(), all.size(), [&](const std::vector<std::size_t>& at) {
        std::vector<const List*> lists;
        for (const std::size_t number : at)
            lists.push_back(&all[number]);
        if (const std::optional<Ns> end = end_of(lists, line, m))
            least = std::min(least, *end);
    });
    return least;
}

const Schedule& both() { return schedule_named("auto-bidirectional"); }

struct Found {
    Ns step, least;
};

Found found_for(int p, int m, const Costs& costs, int activations) {
    const Shape shape = placed(both(), shape_of(both(), p, m));
    const OrderCosts own =
        order_costs(shape, costs, std::vector<Bytes>(static_cast<std::size_t>(p), std::numeric_limits<Bytes>::max()));
    PlanOptions options;
    options.schedule.activations = activations;
    const Ns step = metrics_of(simulate(ordered(both(), shape, options, &own).plan, costs)).step_time;
    return {step, least_times(OrderModel({shape, options.schedule, &own})).step};
}

TEST(AutoBidirectional, IsMostlyTheShortestOfAllOrdersOfSmallInstances) {
    Random random(44);
    int least_steps = 0, longer = 0;
    for (int round = 0; round < std::max(1, rounds(2)); ++round)
        for (const auto& [p, m] : {std::pair(2, 2), std::pair(2, 3), std::pair(4, 2)})
            for (int room = 1; room <= m; ++room) {
                Line line{{}, pick(random, 0, 3)};
                Costs costs = uniform(p, 1, 1, 1, line.latency);
                line.times = draw_passes(random, costs);
                std::vector<List> all;
                List list;
                add_lists(m, room, {}, list, all);
                const Ns least = least_end(line, all, m);
                const Found found = found_for(p, m, costs, room);
                EXPECT_GE(found.step, least) << p << ' ' << m << ' ' << room << " round " << round;
                EXPECT_LE(100 * found.step, 105 * least) << p << ' ' << m << ' ' << room << " round " << round;
                ++(found.step == least ? least_steps : longer);
                EXPECT_LE(found.least, least) << p << ' ' << m << ' ' << room << " round " << round;
            }
    EXPECT_LT(2 * longer, least_steps);
}

// With equal passes no named schedule of this placement is shorter, and with more room the bubble goes.
TEST(AutoBidirectional, IsShorterThanNamedSchedules) {
    const Costs costs = uniform(4, 10, 10, 10);
    const auto step_in = [&](const char* schedule) {
        return metrics_of(simulate(plan_of(schedule, 4, 8), costs)).step_time;
    };
    const Found found = found_for(4, 8, costs, 5);
    EXPECT_LT(found.step, step_in("dualpipe"));
    EXPECT_LT(found.step, step_in("chimera"));
    EXPECT_LE(found.step, 8 * 30 + 10);  // the work of a device, and a forward
}

TEST(AutoBidirectional, NeedsEvenlyManyDevicesAndAMicroBatchPerDirection) {
    const Costs odd = uniform(3, 1, 1, 1), even = uniform(4, 1, 1, 1);
    EXPECT_NE(refusal([&] { found_for(3, 4, odd, 2); }).find("take 2 or 4 devices"), std::string::npos);
    EXPECT_NE(refusal([&] { found_for(4, 1, even, 2); }).find("take 2 micro-batches or more"), std::string::npos);
}

}  // namespace
}  // namespace pw
