// The bound on all ways to share devices out among stages with replicas.
#include "search/plans/makespan.h"
#include "search/plans/trial.h"
#include "tests/search/random_problem.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

// The bound on all ways of sharing is one: no composition that is tried by itself undercuts it. Returns the most that
// the best plan reserves on a device.
Bytes expect_bound_on_shares(const Config& config, const Model& model, const Profile& profile) {
    const SearchProblem problem{config, model, [&](int) { return profile; }, {}};
    const StageSpace space(model.layers, 1200);
    const PlanChoice choice{"1f1b", {0, 1, 2}, 3, 8, 1};
    const SizedModel sized(problem, space, choice);
    Deadline never(1e9);
    Trial any(problem, space, sized, choice);
    any.open(never);
    const SearchResult result = search_plans(problem, {.tasks = 1'000'000});
    if (result.best() == nullptr) {
        ADD_FAILURE() << "nothing fits";
        return 0;
    }
    EXPECT_LE(any.bound_of_any_shares(never), result.best()->step_time);
    return result.best()->most_reserved();
}

Config random_config_of_shares(Random& random) {
    Config config = random_config(random, "1f1b");
    config.cluster.devices.assign(6, {});
    config.search.replicas = SearchConfig::Replicas::Yes;
    config.search.recompute = SearchConfig::Recompute::None;
    config.search.stages = {3};
    config.search.mini_batch = 8;
    config.search.micro_batch_sizes = {1};
    return config;
}

TEST(MakespanSearch, BoundsEveryWayToShareOutDevices) {
    Random random(5);
    for (int round = 0; round < 12; ++round) {
        const Model model = random_model(random);
        const Profile profile = random_profile(model, random);
        Config config = random_config_of_shares(random);
        if (num_vertices(model.layers) < 3)
            continue;
        expect_bound_on_shares(config, model, profile);
        for (int microbatch = 0; microbatch < 8; ++microbatch)
            config.pipeline.micro_batch_lengths.push_back(
                {pick(random, 1, 40) * 0.1, pick(random, 1, 40) * 0.1, pick(random, 1, 40) * 0.1});
        expect_bound_on_shares(config, model, profile);
    }
}

// Where updates and the optimizer's states weigh most, and there is no more memory than the best plan takes.
TEST(MakespanSearch, BoundsEveryWayToShareOutOptimizers) {
    Random random(6);
    for (int round = 0; round < 12; ++round) {
        const Model model = random_model(random);
        Profile profile = random_profile(model, random);
        Config config = random_config_of_shares(random);
        for (LayerProfile& layer : profile.layers) {
            layer.update.median *= 1000;
            layer.bytes[1] = {.weights = 100 * layer.bytes[1].weights, .output = 64};
        }
        config.training.zero = 1;
        if (round % 2 == 1)
            config.training.types = {.weights = NumberType::Bf16, .master = MasterType::Fp32};
        if (num_vertices(model.layers) < 3)
            continue;
        const Bytes reserved = expect_bound_on_shares(config, model, profile);
        for (DeviceConfig& device : config.cluster.devices)
            device.memory = reserved;
        expect_bound_on_shares(config, model, profile);
    }
}

}  // namespace
}  // namespace pw
