// The bound of searches of clusters on the step time of plans whose tasks overlap in pairs, against the simulator.
#include "search/clusters/cluster_bounds.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/shapes.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

TEST(PairBounds, AreNeverAboveThePlan) {
    Random random(11);
    int sharp = 0;
    for (int round = 0; round < 120; ++round) {
        const Schedule& schedule = schedule_named(round % 2 == 0 ? "dualpipe" : "dualpipe-v");
        const int h = pick(random, 1, 3), m = 2 * h + pick(random, 0, 4);
        const Shape shape = round % 2 == 0 ? shape_of(schedule, 2 * h, 2 * m) : shape_of(schedule, h, m);
        Costs costs = uniform(2 * h, 1, 1, 1);
        costs.pair_exposed = 0.25 * pick(random, 0, 4);
        for (StageCost& cost : costs.stage) {
            cost.forward = pick(random, 1, 60);
            cost.backward_input = pick(random, 1, 30);
            cost.backward_weight = pick(random, 1, 30);
            cost.backward = cost.backward_input + cost.backward_weight;
        }
        if (round >= 60)  // some pairs are known: as long as the longer pass, as both, or in between
            for (int stage = 0; stage < 2 * h; ++stage) {
                const Ns forward = costs.stage[stage].forward, backward = costs.stage[2 * h - 1 - stage].backward;
                if (pick(random, 0, 2) > 0)
                    costs.stage[stage].pair =
                        std::max(forward, backward) + std::min(forward, backward) * pick(random, 0, 2) / 2;
            }
        const auto facts = order_facts(schedule, shape, {});
        ASSERT_TRUE(facts != nullptr && facts->pairs);
        const Ns bound = least_step_time(*facts, costs),
                 time = metrics_of(simulate(make_plan(schedule, shape), costs)).makespan;
        EXPECT_LE(bound, time) << round;
        sharp += 10 * bound > 6 * time;
    }
    EXPECT_GT(sharp, 20);
}

}  // namespace
}  // namespace pw
