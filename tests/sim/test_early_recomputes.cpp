// R in idle time: against every place of few R, and laws of random plans.
#include "schedules/passes/passes.h"
#include "sim/early_recomputes.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace pw {
namespace {

constexpr Bytes kNoLimit = std::numeric_limits<Bytes>::max();

PlanOptions recomputed_ahead(std::vector<int> stages, int ahead = 0) {
    PlanOptions options;
    options.recompute = {.stages = std::move(stages), .ahead = ahead};
    return options;
}

std::vector<int> all_stages(int stages) {
    std::vector<int> all(static_cast<std::size_t>(stages));
    std::iota(all.begin(), all.end(), 0);
    return all;
}

Costs random_costs(Random& random, int stages) {
    Costs costs = uniform(stages, 10, 10, 10, pick(random, 0, 8));
    for (StageCost& stage : costs.stage) {
        stage.forward = pick(random, 5, 20);
        stage.backward_input = pick(random, 5, 20);
        stage.backward_weight = pick(random, 5, 20);
        stage.backward = stage.backward_input + stage.backward_weight;
        stage.recompute = stage.forward - pick(random, 0, 4);
    }
    for (StageBytes& bytes : costs.bytes)
        bytes.until_input = 1000 * pick(random, 1, 5);
    return costs;
}

Ns step_of(const Plan& plan, const Costs& costs) { return metrics_of(simulate(plan, costs)).step_time; }

std::vector<Bytes> used_by(const Plan& plan, const Costs& costs) {
    std::vector<Bytes> used;
    for (const DeviceMetrics& device : metrics_of(simulate(plan, costs)).devices)
        used.push_back(device.needed_memory());
    return used;
}

// Returns the least step over all places of the R of one device, from `at` on in its list.
Ns least_step(Plan plan, std::size_t device, std::size_t at, const Costs& costs) {
    const Tasks list = plan.order[device];
    while (at < list.size() && list[at].op != Op::Recompute)
        ++at;
    if (at == list.size())
        return step_of(plan, costs);
    const Task again = list[at];
    Ns least = std::numeric_limits<Ns>::max();
    for (std::size_t to = at;; --to) {
        Tasks& moved = plan.order[device] = list;
        std::rotate(moved.begin() + static_cast<std::ptrdiff_t>(to), moved.begin() + static_cast<std::ptrdiff_t>(at),
                    moved.begin() + static_cast<std::ptrdiff_t>(at) + 1);
        least = std::min(least, least_step(plan, device, at + 1, costs));
        if (to == 0 || (list[to - 1].op == Op::Forward && list[to - 1].microbatch == again.microbatch &&
                        list[to - 1].stage == again.stage))
            return least;
    }
}

TEST(EarlyRecomputes, AreNearTheBestOfAllPlaces) {
    Random random(5);
    double longer = 0, gained = 0;
    const int all = std::max(2, rounds(6));
    for (int round = 0; round < all; ++round) {
        const char* const name = round % 2 == 0 ? "1f1b" : "zb-h1";
        const int p = pick(random, 2, 3), m = 4;
        const Costs costs = random_costs(random, p);
        const Plan plan = plan_of(name, p, m, 1, recomputed_ahead({0}));
        const Ns least = least_step(plan, 0, 0, costs);
        const Ns found = step_of(with_early_recomputes(plan, costs, {}, {}), costs);
        EXPECT_GE(found, least) << "round " << round;
        EXPECT_LE(100 * found, 105 * least) << "round " << round;
        longer += static_cast<double>(found - least) / static_cast<double>(least);
        gained += static_cast<double>(step_of(plan, costs) - found) / static_cast<double>(least);
    }
    EXPECT_LT(longer / all, 0.005);
    EXPECT_GT(gained / all, 0.01);
}

TEST(EarlyRecomputes, NeverLengthenAStepNorExceedTheMemory) {
    Random random(6);
    int moved = 0;
    for (int round = 0; round < rounds(40); ++round) {
        const Schedule& schedule = schedules()[static_cast<std::size_t>(round) % schedules().size()];
        if (schedule.needs_costs || !schedule.trains || schedule.cuts_sequences())
            continue;
        const Shape shape = shape_taken(schedule, pick(random, 2, 5), pick(random, 2, 12));
        const Costs costs = random_costs(random, shape.stages);
        const Plan plan = plan_in(schedule, shape, recomputed_ahead(all_stages(shape.stages)));
        const std::vector<Bytes> before = used_by(plan, costs);
        std::vector<Bytes> memory = before;
        for (Bytes& bytes : memory)
            bytes = pick(random, 0, 2) == 0 ? bytes / 2 : bytes + 1000 * pick(random, 0, 20);
        const Plan free = with_early_recomputes(plan, costs, {}, {}),
                   limited = with_early_recomputes(plan, costs, {}, memory);
        for (const Plan* const one : {&free, &limited}) {
            EXPECT_NO_THROW(check(*one)) << schedule.name;
            EXPECT_LE(step_of(*one, costs), step_of(plan, costs)) << schedule.name;
            moved += one->order != plan.order ? 1 : 0;
        }
        const std::vector<Bytes> used = used_by(limited, costs);
        for (std::size_t device = 0; device < used.size(); ++device)
            EXPECT_LE(used[device], std::max(memory[device], before[device])) << schedule.name;
        EXPECT_EQ(with_early_recomputes(plan, costs, {}, memory).order, limited.order) << schedule.name;
    }
    EXPECT_GT(moved, 2);
}

// The first wait of the slowest stage has room for the R of all micro-batches of the warm-up; more are of no use.
TEST(EarlyRecomputes, FillTheFirstWaitOf1f1b) {
    const Costs costs = uniform(4, 8, 8, 8);
    const Plan plan = plan_of("1f1b", 4, 12, 1, recomputed_ahead({0}));
    const Plan early = with_early_recomputes(plan, costs, {}, {});
    EXPECT_EQ(step_of(early, costs), step_of(plan_of("1f1b", 4, 12, 1, recomputed_ahead({0}, 3)), costs));
    EXPECT_EQ(early.order, plan_of("1f1b", 4, 12, 1, recomputed_ahead({0}, 3)).order);
    EXPECT_EQ(plan_of("1f1b", 4, 12, 1, recomputed_ahead({0}, Recomputation::kByCosts)).order, plan.order);
}

TEST(EarlyRecomputes, LeavePlansWithoutRAlone) {
    const Plan plan = plan_of("1f1b", 2, 4);
    EXPECT_EQ(with_early_recomputes(plan, uniform(2, 1, 1, 1), {}, {kNoLimit, kNoLimit}).order, plan.order);
}

}  // namespace
}  // namespace pw
