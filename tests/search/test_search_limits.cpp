// The search by simulated step time: many devices, threads, memory that ends, time that ends, and bounds of rounded
// times.
#include "schedules/orders/schedule.h"
#include "search//plans/makespan.h"
#include "search/plans/choice_list.h"
#include "tests/search/random_problem.h"
#include "tests/support/dice.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <gtest/gtest.h>

#include <new>
#include <random>
#include <string>
#include <vector>

namespace pw {
namespace {

// Equal layers, so that equal shares are best.
struct EqualLayers {
    Model model{"equal", {8, 1, 1}, 8, {}};
    Profile profile;
    Config config;
    explicit EqualLayers(int layers, int devices) {
        for (int layer = 0; layer < layers; ++layer)
            add_layer(model.layers, Layer{"layer" + std::to_string(layer), LayerKind::Profiled, {8, 1, 1}, {8, 1, 1}},
                      layer == 0 ? std::vector<int>{} : std::vector<int>{layer - 1});
        profile = analytic_profile(model, 1, {});
        for (LayerProfile& layer : profile.layers) {
            layer.times[1] = {};
            layer.times[1].forward.median = layer.times[1].backward_input.median = 1000;
            layer.times[1].backward.median = 1000;
        }
        config.pipeline.schedule = "1f1b";
        config.cluster.link_given = true;
        config.cluster.devices.resize(static_cast<std::size_t>(devices));
        config.search.replicas = SearchConfig::Replicas::Yes;
        config.search.mini_batch = 64;
        config.search.stages = {4};
    }
    SearchProblem problem() {
        return {config, model, [this](int) { return profile; }, {}};
    }
};

// Layers of 11 + 11 and 8 + 8 ns on devices of speed 1 and 0.7: 100 rounds of 22 ns and a bit, although 38 ns of work
// shared by speeds that add up to 1.7 are 22.35 ns.
TEST(SearchLimits, BoundsNoMoreThanRoundedTimes) {
    Model model{"two", {8, 1, 1}, 8, {}};
    for (const char* name : {"a", "b"})
        add_layer(model.layers, Layer{name, LayerKind::Profiled, {8, 1, 1}, {8, 1, 1}},
                  name[0] == 'a' ? std::vector<int>{} : std::vector<int>{0});
    Profile profile = analytic_profile(model, 1, {});
    profile.data[1].median = 0;
    for (LayerProfile& layer : profile.layers) {
        const Ns time = layer.name == "a" ? 11 : 8;
        layer.update.median = 0;
        layer.times[1] = {};
        layer.times[1].forward.median = layer.times[1].backward_input.median = layer.times[1].backward.median = time;
    }
    Config config;
    config.pipeline.schedule = "1f1b";
    config.cluster.link_given = true;
    config.cluster.devices.resize(2);
    config.cluster.devices[1].speed = 0.7;
    config.search.mini_batch = 100;
    config.search.stages = {2};
    const SearchResult result = search_plans({config, model, [&](int) { return profile; }, {}});
    ASSERT_NE(result.best(), nullptr);
    EXPECT_LE(result.best()->step_time, 2222);
    for (const FoundPlan& plan : result.plans)
        EXPECT_LE(plan.lower_bound, plan.step_time);
}

// Times of a few nanoseconds, so that rounding weighs.
TEST(SearchLimits, BoundIsNeverAboveAPlanWhateverTheSpeeds) {
    Random random(12);
    for (int round = 0; round < rounds(100); ++round) {
        EqualLayers chain(pick(random, 2, 4), 2);
        for (LayerProfile& layer : chain.profile.layers) {
            LayerTimes& times = layer.times[1];
            times.forward.median = pick(random, 1, 12);
            times.backward_input.median = pick(random, 1, 12);
            times.backward_weight.median = pick(random, 0, 12);
            times.backward.median = times.backward_input.median + times.backward_weight.median;
            layer.update.median = 0;
        }
        chain.profile.data[1].median = 0;
        for (DeviceConfig& device : chain.config.cluster.devices)
            device.speed = pick(random, 0, 1) ? 1 : pick(random, 1, 19) * 0.1;
        chain.config.search.replicas = round % 2 == 0 ? SearchConfig::Replicas::Yes : SearchConfig::Replicas::No;
        chain.config.search.schedules = {"1f1b", "interleaved", "zb-h1", "gpipe"};
        chain.config.search.stages = {1, 2, 4};
        chain.config.search.mini_batch = 40;
        const SearchResult result = search_plans(chain.problem(), {.tasks = 40'000});
        for (const FoundPlan& plan : result.plans)
            EXPECT_LE(plan.lower_bound, plan.step_time) << print(plan.choice) << " round " << round;
    }
}

// A proposal covers every layer: half a model that fits is no plan.
TEST(SearchLimits, LeavesNoLayerOutWhereTheModelDoesNotFit) {
    EqualLayers large(4, 1);
    large.config.search.stages = {1};
    large.config.search.mini_batch = 1;
    large.config.pipeline.schedule = "forward-only";  // no gradient comes back from the later layers
    for (LayerProfile& layer : large.profile.layers)
        layer.bytes[1] = {6400, 0, 64, 64, 0, 0};
    large.config.cluster.devices[0].memory = 3 * 6400 + 1000;  // three layers fit
    const SearchResult result = search_plans(large.problem());
    EXPECT_EQ(result.best(), nullptr);
    EXPECT_TRUE(result.none_fits);
    ASSERT_TRUE(result.shortage.has_value());
    EXPECT_GT(result.shortage->needs, 4 * 6400);
}

// 10.7 million ways to share out 128 devices among 4 stages.
TEST(SearchLimits, SharesOutManyDevicesWithoutTryingEveryWay) {
    EqualLayers equal(16, 128);
    EXPECT_LT(choices_of(equal.config, 16).all.size(), 100u);
    EXPECT_FALSE(choices_of(equal.config, 16).complete());
    const SearchResult result = search_plans(equal.problem(), {.tasks = 300'000});
    ASSERT_NE(result.best(), nullptr);
    EXPECT_FALSE(result.every_choice);
    EXPECT_EQ(result.best()->choice.replicas, (std::vector<int>{32, 32, 32, 32}));
    EXPECT_LE(result.lower_bound, result.best()->step_time);
    EXPECT_GT(result.lower_bound, result.best()->step_time / 4);
}

// 5 + 4 + 4 + 4 layers on 17 devices: equal shares leave one of them out.
TEST(SearchLimits, SharesOutDevicesByWork) {
    EqualLayers uneven(4, 17);
    uneven.profile.layers[2].times[1].forward.median = 2000;
    uneven.profile.layers[2].times[1].backward.median = uneven.profile.layers[2].times[1].backward_input.median = 2000;
    const SearchResult result = search_plans(uneven.problem(), {.tasks = 300'000});
    ASSERT_NE(result.best(), nullptr);
    const std::vector<int>& replicas = result.best()->choice.replicas;
    ASSERT_EQ(replicas.size(), 4u);
    EXPECT_GT(replicas[2], replicas[0]);
    EXPECT_GT(replicas[2], replicas[3]);
    for (const FoundPlan& plan : result.plans)
        EXPECT_LE(result.best()->step_time, plan.step_time);
}

TEST(SearchLimits, AnswersWithWhatItFoundWhenMemoryEnds) {
    EqualLayers equal(6, 2);
    equal.config.search.replicas = SearchConfig::Replicas::No;
    equal.config.search.stages = {2};
    equal.config.search.micro_batch_sizes = {1, 2};
    const SearchProblem problem{equal.config,
                                equal.model,
                                [&](int samples) {
                                    if (samples == 2)
                                        throw std::bad_alloc();
                                    return equal.profile;
                                },
                                {}};
    const SearchResult result = search_plans(problem);
    ASSERT_NE(result.best(), nullptr);
    EXPECT_EQ(result.stop, SearchStop::Memory);
    EXPECT_EQ(result.left_out, 1);
    EXPECT_EQ(result.choices, 2);
    EXPECT_EQ(result.lower_bound, 0) << "the choices that are left out have no bound";
}

TEST(SearchLimits, TriesNothingWhenTheTimeIsUp) {
    EqualLayers equal(6, 4);
    const SearchResult result = search_plans(equal.problem(), {.seconds = 0});
    EXPECT_EQ(result.best(), nullptr);
    EXPECT_EQ(result.stop, SearchStop::Time);
    EXPECT_FALSE(result.none_fits);
}

// A line for every choice, not only for every batch of them.
TEST(MakespanSearch, TellsItsProgress) {
    EqualLayers equal(6, 2);
    equal.config.search.replicas = SearchConfig::Replicas::No;
    equal.config.search.stages = {2};
    equal.config.search.micro_batch_sizes = {1};
    equal.config.search.schedules = {"1f1b", "gpipe"};
    std::vector<std::string> states;
    const SearchResult result =
        search_plans(equal.problem(), {}, [&](const std::string& state) { states.push_back(state); });
    ASSERT_GE(states.size(), 4u);
    EXPECT_TRUE(states[0].starts_with("proposing 0/2: nothing fits yet, 0 plans")) << states[0];
    EXPECT_TRUE(states[1].starts_with("proposing 1/2: best " + print_time(result.best()->step_time))) << states[1];
    EXPECT_NE(states[1].find(", gap "), std::string::npos) << states[1];
    EXPECT_TRUE(states[2].starts_with("proposing 2/2: ")) << states[2];
}

TEST(MakespanSearch, DoesNotDependOnThreads) {
    Random random(7);
    for (int round = 0; round < (soaks() ? 6 : 3); ++round) {
        const Model model = random_model(random);
        const Profile profile = random_profile(model, random);
        Config config = random_config(random, "1f1b");
        config.search.schedules = {"1f1b", "gpipe", "zb-h1", "interleaved"};
        const SearchProblem problem{config, model, [&](int) { return profile; }, {}};
        const SearchResult one = search_plans(problem, {.tasks = 20'000, .threads = 1});
        const SearchResult many = search_plans(problem, {.tasks = 20'000, .threads = 3});
        EXPECT_EQ(one.candidates, many.candidates);
        EXPECT_EQ(one.lower_bound, many.lower_bound);
        ASSERT_EQ(one.plans.size(), many.plans.size());
        for (std::size_t i = 0; i < one.plans.size(); ++i) {
            EXPECT_EQ(one.plans[i].choice, many.plans[i].choice);
            EXPECT_EQ(one.plans[i].split.layers, many.plans[i].split.layers);
            EXPECT_EQ(one.plans[i].step_time, many.plans[i].step_time);
        }
    }
}

}  // namespace
}  // namespace pw
