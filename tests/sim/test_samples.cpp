// Draws of step times against means and deviations that are known.
#include "schedules/orders/schedule.h"
#include "sim/samples.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/drawn_plans.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

namespace pw {
namespace {

// Mean and deviation of the step of one device without transfers: 100 forwards of a millisecond and backwards of two.
struct Moments {
    Samples samples;
    double mean, deviation;
};
Moments moments_of(const Jitter& jitter, int draws) {
    Shape shape;
    shape.microbatches = 100;
    const Plan plan = make_plan(schedule_named("gpipe"), shape);
    Costs costs;
    costs.stage.push_back({.forward = 1'000'000, .backward = 2'000'000});
    costs.bytes.emplace_back();
    Samples samples = Simulator(plan, {}).sample(costs, jitter, draws, 3, 2);
    double sum = 0, squares = 0;
    for (const Ns time : samples.step_times) {
        sum += static_cast<double>(time);
        squares += static_cast<double>(time) * static_cast<double>(time);
    }
    const double mean = sum / draws;
    return {std::move(samples), mean, std::sqrt(squares / draws - mean * mean)};
}

// The step is the sum of its tasks, whose mean and deviation are known.
TEST(Samples, HaveTheMeanAndDeviationOfASumOfLognormalTimes) {
    const double sigma = 0.2, count = 20'000;
    const auto [samples, mean, deviation] = moments_of(lognormal_jitter(sigma), 20'000);
    const double expected = std::sqrt(std::exp(sigma * sigma) - 1) * std::sqrt(100 * (1e6 * 1e6 + 2e6 * 2e6));
    EXPECT_NEAR(mean, 300e6, 4 * expected / std::sqrt(count));
    EXPECT_NEAR(deviation, expected, 0.03 * expected);
    EXPECT_EQ(samples.slowest, std::vector<int>{20'000});
    EXPECT_NEAR(static_cast<double>(quantile_of(samples, 0.95)), mean + 1.645 * expected, 0.1 * expected);
}

// Two layers of one stage: medians add up, and so do the squares of what scatters.
TEST(Samples, ScatterAsTheProfileOfTheirLayers) {
    const auto layer = [](Ns forward, Ns spread) {
        LayerProfile made;
        made.times[4].forward = {forward, spread};
        made.times[4].backward = {2 * forward, 0};
        made.times[8].forward = made.times[8].backward = {1, 1};
        return made;
    };
    Profile profile;
    profile.layers = {layer(600'000, 256'310), layer(400'000, 512'621)};
    const std::vector<StageSpread> spreads = spreads_of({.layers = {{0, 1}}, .stage_of = {0, 0}}, profile, 5);
    ASSERT_EQ(spreads.size(), 1u);
    const double relative = std::sqrt(0.1 * 0.1 + 0.2 * 0.2);  // deviations of 0.1 and 0.2 ms in 1 ms
    EXPECT_NEAR(spreads[0].forward, relative, 1e-5);
    EXPECT_EQ(spreads[0].backward, 0);

    const Moments moments = moments_of(normal_jitter(spreads), 20'000);
    const double expected = relative * 1e6 * std::sqrt(100.0);
    EXPECT_NEAR(moments.mean, 300e6, 4 * expected / std::sqrt(20'000.0));
    EXPECT_NEAR(moments.deviation, expected, 0.03 * expected);
}

// Asked a few times, on one thread or on several: the draws are the first of all draws.
TEST(Samples, OfAStoppedCallAreTheFirst) {
    Shape shape;
    shape.microbatches = 10;
    const Plan plan = make_plan(schedule_named("gpipe"), shape);
    Costs costs;
    costs.stage.push_back({.forward = 1'000'000, .backward = 2'000'000});
    costs.bytes.emplace_back();
    const Jitter jitter = lognormal_jitter(0.2);
    const Samples all = Simulator(plan, {}).sample(costs, jitter, 1000, 3, 1);
    for (const int threads : {1, 4})
        for (const int times : {0, 1, 5}) {
            std::atomic<int> asked = 0;
            const Samples some =
                Simulator(plan, {}).sample(costs, jitter, 1000, 3, threads, [&] { return asked++ >= times; });
            ASSERT_LT(some.step_times.size(), all.step_times.size());
            EXPECT_EQ(some.step_times.empty(), times == 0);
            EXPECT_TRUE(std::equal(some.step_times.begin(), some.step_times.end(), all.step_times.begin()));
            EXPECT_EQ(some.slowest, std::vector<int>{static_cast<int>(some.step_times.size())});
        }
}

TEST(Samples, AreTheStepTimeWithoutJitterAndTheSameOnAnyNumberOfThreads) {
    Random random(13);
    for (int round = 0; round < rounds(100); ++round) {
        std::optional<Drawn> drawn = draw(random);
        if (!drawn)
            continue;
        if (round % 2 == 1)
            add_neighbours(random, drawn->costs);
        const auto& [plan, costs, mode] = *drawn;
        Simulator simulator(plan, mode);
        const Samples still = simulator.sample(costs, lognormal_jitter(0), 11, 1, 2);
        ASSERT_EQ(still.step_times, std::vector<Ns>(11, simulator.step_time(costs))) << plan.schedule;
        const Samples one = simulator.sample(costs, lognormal_jitter(0.3), 50, 1, 1);
        const Samples three = simulator.sample(costs, lognormal_jitter(0.3), 50, 1, 3);
        ASSERT_EQ(one.step_times, three.step_times) << plan.schedule;
        ASSERT_EQ(one.slowest, three.slowest) << plan.schedule;
    }
}

}  // namespace
}  // namespace pw
