// Builds what a config names; errors of the builders point at its keys.
#include "job/build.h"
#include "job/config/config.h"
#include "job/job.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <tuple>

namespace pw {
namespace {

StageSplit split_of(const Config& config) {
    const Model model = build_model(config);
    return make_split(config, model, profile_of(config, model));
}

TEST(FromConfig, BuildsModels) {
    const Model resnet = build_model(load("workload: {model: resnet50, image_size: 64, classes: 7}"));
    EXPECT_EQ(resnet.input, (Dims{3, 64, 64}));
    EXPECT_EQ(resnet.classes, 7);
    EXPECT_EQ(build_model(load("workload: {model: mlp}")).input, (Dims{1, 28, 28}));
    EXPECT_EQ(build_model(load("workload: {model: mlp, dataset: cifar10}")).input, (Dims{3, 32, 32}));
}

TEST(FromConfig, SplitsAsAsked) {
    for (const char* split : {"auto", "even", "[layer2.0, layer3]"}) {
        const Config config = load(fmt::format(
            "{{workload: {{model: resnet50, image_size: 32}}, pipeline: {{stages: 3, split: {}}}}}", split));
        EXPECT_EQ(split_of(config).stages(), 3) << split;
    }
}

// A split written as lists equals the split by cuts.
TEST(FromConfig, ListsEqualCuts) {
    const Config cuts = load("{workload: {model: resnet50}, pipeline: {split: [layer3]}}");
    const Model model = build_model(cuts);
    const StageSplit split = split_of(cuts);
    std::string lists;
    for (const std::vector<int>& layers : split.layers) {
        std::string names;
        for (const int layer : layers)
            names += (names.empty() ? "" : ", ") + model.layers[static_cast<std::size_t>(layer)].name;
        lists += (lists.empty() ? "[" : ", [") + names + "]";
    }
    const Config same =
        load(fmt::format("{{workload: {{model: resnet50}}, pipeline: {{split: {{stages: [{}]}}}}}}", lists));
    EXPECT_EQ(split_of(same).layers, split.layers);
}

// Gradients are summed by stage unless the config sets `layer`.
TEST(FromConfig, SplitsGroupTheReadersOfATensorAsAsked) {
    const std::string text = "{{workload: {{model: resnet50}}, pipeline: {{split: [layer3]}}, run: {{{}}}}}";
    const StageSplit by_stage = split_of(load(fmt::format(fmt::runtime(text), "")));
    const StageSplit by_layer = split_of(load(fmt::format(fmt::runtime(text), "fan_out_gradients: layer")));
    for (int layer = 0; layer < std::ssize(by_stage.stage_of); ++layer) {
        EXPECT_EQ(by_stage.group_of(layer), by_stage.stage_of[layer]);
        EXPECT_EQ(by_layer.group_of(layer), layer);
    }
}

// The dispatch is that of the config, else of the profile, whether the profile is read, passed in or absent.
TEST(FromConfig, TasksTakeTheDispatchThatIsGiven) {
    const std::string given = "{workload: {model: mlp}, cluster: {dispatch: 3 us}}";
    Notices notices;
    EXPECT_EQ(make_job(load(given), notices).costs.dispatch, 3'000);
    EXPECT_EQ(make_job(load("workload: {model: mlp}"), notices).costs.dispatch, 0);
    Profile profile = profile_of(load("workload: {model: mlp}"), build_model(load("workload: {model: mlp}")));
    profile.dispatch.median = 7'000;
    EXPECT_EQ(make_job(load(given), profile, notices).costs.dispatch, 3'000);
    EXPECT_EQ(make_job(load("workload: {model: mlp}"), profile, notices).costs.dispatch, 7'000);
    const Job uniform = make_job(load("{workload: {model: uniform, stages: 1}, cluster: {dispatch: 3 us}}"), notices);
    EXPECT_EQ(uniform.costs.dispatch, 3'000);
}

// An update by SGD passes over memory 5 times, by AdamW 7 times.
TEST(FromConfig, UpdatesOfAMeasuredProfileTakeThePassesOfTheOptimizer) {
    const TemporaryFolder folder;
    const auto config = [&](const char* optimizer) {
        return load(fmt::format("{{workload: {{model: mlp}}, cluster: {{profile: {}}}, training: {{optimizer: {}}}}}",
                                (folder.path() / "profile.yaml").string(), optimizer));
    };
    const Model model = build_model(load("workload: {model: mlp}"));
    for (const auto& [measured, sgd, adamw] :
         {std::tuple{OptimizerKind::Sgd, Ns{1000}, Ns{1400}}, {OptimizerKind::AdamW, Ns{714}, Ns{1000}}}) {
        Profile profile = analytic_profile(model, 1, {});
        profile.backend = "cpu";
        profile.optimizer = measured;
        for (LayerProfile& layer : profile.layers)
            layer.update.median = 1000;
        write_profile(profile, (folder.path() / "profile.yaml").string());
        EXPECT_EQ(profile_of(config("sgd"), model).layers[0].update.median, sgd);
        EXPECT_EQ(profile_of(config("adamw"), model).layers[0].update.median, adamw);
    }
}

// The profile has a link inside a host and one between hosts; the config determines which devices share a host.
TEST(FromConfig, PairsOfDevicesHaveTheLinkOfTheirHosts) {
    const auto config = [](const std::string& cluster) {
        return load(fmt::format("{{workload: {{model: mlp}}, cluster: {{devices: 4{}}}}}", cluster));
    };
    Notices notices;
    Profile profile = analytic_profile(build_model(config("")), 1, {});
    profile.backend = "cpu";
    profile.link = profile.sums = {1'000, 1e9};
    const Job one_link = make_job(config(""), profile, notices);
    EXPECT_FALSE(one_link.costs.cluster->between_hosts);
    profile.between_hosts = Link{9'000, 1e8};
    const Costs costs = make_job(config(", devices_per_host: 2"), profile, notices).costs;
    EXPECT_EQ(costs.cluster->link_of(0, 1), profile.link);
    EXPECT_EQ(costs.cluster->link_of(3, 2), profile.link);
    EXPECT_EQ(costs.cluster->link_of(1, 2), *profile.between_hosts);
    EXPECT_EQ(costs.cluster->link_of(3, 0), *profile.between_hosts);
    // A link of the config replaces both.
    const Costs given = make_job(config(", link: {latency: 5 ns}"), profile, notices).costs;
    EXPECT_EQ(given.cluster->link_of(1, 2), Link{5});
    EXPECT_FALSE(given.cluster->between_hosts);
    // One device sends nothing.
    EXPECT_NO_THROW(make_job(load("workload: {model: mlp}"), profile, notices));
    const std::string message = refusal([&] { make_job(config(""), profile, notices); });
    for (const char* part : {"device 0 has no host", "cluster.devices_per_host", "cluster.link"})
        EXPECT_TRUE(contains(message, part)) << message;
}

TEST(FromConfig, PointsAtTheWrongCut) {
    const Config config = load("workload: {model: resnet50}\npipeline: {split: [layer2, layer9, layer3]}\n");
    const std::string message = refusal([&] { split_of(config); });
    EXPECT_TRUE(contains(message, "cfg.yaml:2:28")) << message;
    EXPECT_TRUE(contains(message, "layer9")) << message;
    const Config backwards = load("workload: {model: resnet50}\npipeline: {split: [layer3, layer2]}\n");
    EXPECT_TRUE(contains(refusal([&] { split_of(backwards); }), "cfg.yaml:2:28"));
}

TEST(FromConfig, PointsAtTheWrongName) {
    const Config config = load("workload: {model: resnet50}\npipeline: {split: {stages: [[conv1, bn7], [fc]]}}\n");
    EXPECT_TRUE(contains(refusal([&] { split_of(config); }), "cfg.yaml:2:37"));
    const Config partial = load("workload: {model: resnet50}\npipeline: {split: {stages: [[conv1], [fc]]}}\n");
    EXPECT_TRUE(contains(refusal([&] { split_of(partial); }), "cfg.yaml:2:28"));
}

// A device's work for one micro-batch is one stage, or two if it holds two, whatever the number of replicas.
TEST(FromConfig, TheLastStageTakesLongerByTheImbalance) {
    const auto forwards_of = [](const std::string& stages, const std::string& rest) {
        Notices notices;
        const Job job = make_job(
            load(fmt::format("{{workload: {{model: uniform, stages: {}, forward: 100 us, imbalance: 0.1}}, {}}}",
                             stages, rest)),
            notices);
        std::vector<Ns> times;
        for (const StageCost& cost : job.costs.stage)
            times.push_back(cost.forward);
        return times;
    };
    const std::vector<Ns> one{90'000, 110'000};
    EXPECT_EQ(forwards_of("2", "cluster: {devices: 2}, pipeline: {schedule: gpipe, micro_batches: 4}"), one);
    EXPECT_EQ(
        forwards_of("2", "cluster: {devices: 4}, pipeline: {schedule: gpipe, micro_batches: 4, replicas: [2, 2]}"),
        one);
    EXPECT_EQ(forwards_of("2", "cluster: {devices: 4}, pipeline: {schedule: 1f1b, micro_batches: 4, replicas: [1, 3]}"),
              one);
    EXPECT_EQ(forwards_of("4", "cluster: {devices: 2}, pipeline: {schedule: interleaved, micro_batches: 4}"),
              (std::vector<Ns>{93'333, 93'333, 93'333, 120'000}));
    EXPECT_EQ(forwards_of("2", "cluster: {devices: 1}, pipeline: {schedule: gpipe, micro_batches: 4}"),
              (std::vector<Ns>{80'000, 120'000}));
}

TEST(FromConfig, AnImbalanceMakesNoStageNegative) {
    const auto job_with = [](double imbalance) {
        Notices notices;
        return make_job(load(fmt::format("workload: {{model: uniform, stages: 2, forward: 100 us, imbalance: {}}}\n"
                                         "cluster: {{devices: 1}}\npipeline: {{schedule: gpipe, micro_batches: 2}}\n",
                                         imbalance)),
                        notices);
    };
    EXPECT_EQ(job_with(0.5).costs.stage[0].forward, 0);
    EXPECT_EQ(job_with(0.5).costs.stage[1].forward, 200'000);
    expect_says(refusal([&] { job_with(0.75); }),
                {"cfg.yaml:1:67", "the last of 2 stages would take 2.5 times the mean", "it is at most 0.5 here"});
}

TEST(FromConfig, PointsAtTheKeyThatIsTooLarge) {
    const Config stages = load("workload: {model: mlp}\npipeline: {stages: 1000}\n");
    EXPECT_TRUE(contains(refusal([&] { split_of(stages); }), "cfg.yaml:2:20"));
    const Config image = load("workload: {model: resnet50, image_size: 8}\n");
    EXPECT_TRUE(contains(refusal([&] { build_model(image); }), "cfg.yaml:1:41"));
    const Config uniform = load("workload: {model: uniform}\n");
    EXPECT_TRUE(contains(refusal([&] { build_model(uniform); }), "cfg.yaml:1:19"));
    const Config profile = load("workload: {model: mlp}\ncluster: {profile: none.yaml}\n");
    EXPECT_TRUE(contains(refusal([&] { profile_of(profile, build_model(profile)); }), "cfg.yaml:2:20"));
}

}  // namespace
}  // namespace pw
