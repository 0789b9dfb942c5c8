#include "job/build.h"
#include "job/config/config.h"
#include "job/load.h"

#include "tests/support/config_text.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

namespace pw {
namespace {

std::string mistakes(const std::string& text, const std::vector<std::string>& set = {}) {
    return refusal([&] { load(text, set); });
}

constexpr const char* kFull = R"(
workload:
  model: resnet50
  image_size: 64
  classes: 10
  dataset: cifar10
  path: data/cifar-10-batches-bin
cluster:
  devices: [{name: a, speed: 0.5, memory: 8 GiB, host: left}, {name: "b c"}]
  memory: 16 GiB
  link: {bandwidth: 10 GB/s, latency: 5 us}
  profile: profile.yaml
  compute: 100 GFLOP/s
  memory_bandwidth: 12.5 GB/s
pipeline:
  schedule: zb-h1
  stages: 2
  split: [layer3.0]
  micro_batches: 8
  micro_batch_size: 4
  replicas: [1, 1]
  weights: flush
  recompute: none
  drain: lifo
training: {steps: 7, optimizer: sgd, learning_rate: 0.1, momentum: 0.5, weight_decay: 1e-4, loss: cross_entropy, seed: 3}
run: {backend: reference, transport: threads, threads_per_device: 2, timeout: 1.5 s, gradient_order: plan}
transfer: {communicator: one, receive: deferred, protocol: rendezvous}
search: {objective: makespan, schedules: [gpipe, 1f1b], micro_batch_sizes: [1, 2, 4], mini_batch: 32}
sweep: {pipeline.micro_batches: [2, 4, 8]}
)";

TEST(Config, ReadsEveryKey) {
    const TemporaryFolder folder;
    const Config config = load_config(folder.write("cfg.yaml", kFull), {});
    EXPECT_EQ(config.workload.model, "resnet50");
    EXPECT_EQ(config.workload.options.image_size, 64);
    EXPECT_EQ(config.workload.path, (folder.path() / "data/cifar-10-batches-bin").string());
    ASSERT_EQ(config.cluster.devices.size(), 2u);
    EXPECT_EQ(config.cluster.devices[0].speed, 0.5);
    EXPECT_EQ(config.cluster.devices[0].memory, Bytes{8} << 30);
    EXPECT_EQ(config.cluster.devices[1].memory, Bytes{16} << 30);
    EXPECT_EQ(config.cluster.devices[1].name, "b c");
    EXPECT_TRUE(config.cluster.link_given);
    EXPECT_EQ(config.cluster.link.bandwidth, 10e9);
    EXPECT_EQ(config.cluster.link.latency, 5000);
    EXPECT_EQ(config.cluster.profile, (folder.path() / "profile.yaml").string());
    EXPECT_EQ(config.cluster.rates.flops, 100e9);
    EXPECT_EQ(config.cluster.rates.memory_bandwidth, 12.5e9);
    EXPECT_EQ(config.pipeline.schedule, "zb-h1");
    EXPECT_EQ(config.pipeline.split, PipelineConfig::Split::Cuts);
    EXPECT_EQ(config.pipeline.cuts, std::vector<std::string>{"layer3.0"});
    EXPECT_EQ(config.pipeline.options.drain, ScheduleOptions::Drain::Lifo);
    EXPECT_EQ(config.training.steps, 7);
    EXPECT_EQ(config.training.weight_decay, 1e-4);
    EXPECT_EQ(config.run.timeout, 1'500'000'000);
    EXPECT_EQ(config.transfer.protocol, TransferMode::Protocol::Rendezvous);
    EXPECT_EQ(config.search.schedules, (std::vector<std::string>{"gpipe", "1f1b"}));
    EXPECT_EQ(config.search.micro_batch_sizes, (std::vector<int>{1, 2, 4}));
    EXPECT_EQ(config.search.mini_batch, 32);
}

TEST(Config, OnlyTheModelIsRequired) {
    const Config config = load("workload: {model: resnet50}");
    EXPECT_EQ(config.workload.options.image_size, 224);
    EXPECT_EQ(config.workload.options.classes, 10);
    EXPECT_EQ(config.workload.dataset, "synthetic");
    EXPECT_EQ(config.pipeline.schedule, "1f1b");
    EXPECT_EQ(config.pipeline.stages, 1);
    EXPECT_EQ(config.pipeline.split, PipelineConfig::Split::Auto);
    ASSERT_EQ(config.cluster.devices.size(), 1u);
    EXPECT_EQ(config.cluster.devices[0].memory, kUnlimited);
    EXPECT_FALSE(config.cluster.link_given);
    EXPECT_EQ(config.cluster.link.latency, 0);
    EXPECT_EQ(config.cluster.link.bandwidth, std::numeric_limits<double>::infinity());
    EXPECT_EQ(config.cluster.rates.flops, 150e9);
    EXPECT_EQ(config.training.steps, 20);
    EXPECT_EQ(config.training.momentum, 0.9);
    EXPECT_EQ(config.run.timeout, 30'000'000'000);
    EXPECT_TRUE(contains(mistakes(""), "'workload.model' is missing"));
    EXPECT_TRUE(contains(mistakes("workload:\n"), "'workload.model' is missing"));
}

TEST(Config, ReadsAndPrintsTheSumsOfFanOuts) {
    const std::string stage = "workload: {model: mlp}",
                      layer = "{workload: {model: mlp}, run: {fan_out_gradients: layer}}";
    EXPECT_EQ(load(stage).run.fan_out_gradients, RunConfig::FanOutGradients::Stage);
    EXPECT_EQ(load(load(stage).yaml).run.fan_out_gradients, RunConfig::FanOutGradients::Stage);
    EXPECT_EQ(load(layer).run.fan_out_gradients, RunConfig::FanOutGradients::Layer);
    EXPECT_EQ(load(load(layer).yaml).run.fan_out_gradients, RunConfig::FanOutGradients::Layer);
    EXPECT_TRUE(contains(mistakes("{workload: {model: mlp}, run: {fan_out_gradients: stages}}"), "stage"));
}

TEST(Config, PrecisionIsReadByItsEarlierNameToo) {
    for (const char* blocks :
         {"run: {backend: cuda}, training: {precision: bf16}", "run: {backend: cuda, precision: bf16}"})
        EXPECT_EQ(load(fmt::format("{{workload: {{model: mlp}}, {}}}", blocks)).training.precision, Precision::Bf16)
            << blocks;
    EXPECT_EQ(load("{workload: {model: mlp}, run: {backend: cuda}}").training.precision, Precision::Fp32);
}

// Each optimizer's keys are printed with it alone.
TEST(Config, ReadsAndPrintsTheKeysOfAnOptimizer) {
    const Config usual = load("{workload: {model: mlp}, training: {optimizer: adamw}}");
    EXPECT_EQ(usual.training.betas, (std::vector<double>{0.9, 0.999}));
    EXPECT_EQ(usual.training.epsilon, 1e-8);
    EXPECT_FALSE(contains(usual.yaml, "momentum"));
    const Config config =
        load("{workload: {model: mlp}, training: {optimizer: adamw, betas: [0.8, 0.95], epsilon: 1e-6}}");
    for (const Config& read : {config, load(config.yaml)}) {
        EXPECT_EQ(read.training.optimizer, OptimizerKind::AdamW);
        EXPECT_EQ(read.training.betas, (std::vector<double>{0.8, 0.95}));
        EXPECT_EQ(read.training.epsilon, 1e-6);
    }
    const Config sgd = load("{workload: {model: mlp}, training: {betas: [0.8, 0.95], epsilon: 1e-6}}");
    EXPECT_TRUE(contains(sgd.yaml, "momentum: 0.9"));
    EXPECT_FALSE(contains(sgd.yaml, "betas") || contains(sgd.yaml, "epsilon"));
}

TEST(Config, RefusesAShardedOptimizerWithATree) {
    EXPECT_TRUE(load("{workload: {model: mlp}, training: {shard_optimizer: true}}").training.zero == 1);
    EXPECT_TRUE(contains(load("{workload: {model: mlp}, training: {shard_optimizer: true}}").yaml, "zero: 1"));
    EXPECT_EQ(load("{workload: {model: mlp}, training: {shard_optimizer: true, zero: 3}}").training.zero, 3);
    const std::string said =
        refusal([] { load("{workload: {model: mlp}, training: {shard_optimizer: true}, transfer: {sums: tree}}"); });
    EXPECT_TRUE(contains(said, "a tree sums no parts"));
    EXPECT_TRUE(contains(said, "sums: two_level"));
}

template <class E>
class ClosedChoices : public testing::Test {};
using AllChoices =
    testing::Types<Precision, ConvolutionPass, WeightPolicy, Prediction, ScheduleOptions::Drain,
                   TransferMode::Communicator, TransferMode::Receive, TransferMode::Protocol, SumAlgorithm,
                   PipelineConfig::Split, PipelineConfig::Recompute, PipelineConfig::Rules, OptimizerKind, NumberType,
                   MasterType, TrainingConfig::Loss, TrainingConfig::BatchNorm, RunConfig::Backend,
                   RunConfig::Transport, RunConfig::GradientOrder, RunConfig::FanOutGradients, SearchConfig::Objective,
                   SearchConfig::Recompute, SearchConfig::P2p>;
TYPED_TEST_SUITE(ClosedChoices, AllChoices);
TYPED_TEST(ClosedChoices, AreReadAsTheyArePrinted) {
    for (const auto& [name, value] : kChoices<TypeParam>) {
        EXPECT_EQ(name_of(value), name);
        EXPECT_EQ(parse_choice<TypeParam>(name), value);
    }
    EXPECT_EQ(parse_choice<TypeParam>(""), std::nullopt);
}

TEST(Search, DefaultsToThePipeline) {
    const SearchConfig search =
        load("{workload: {model: mlp}, pipeline: {micro_batches: 6, micro_batch_size: 4}}").search;
    EXPECT_EQ(search.objective, SearchConfig::Objective::Makespan);
    EXPECT_TRUE(search.schedules.empty() && search.micro_batch_sizes.empty() && search.stages.empty());
    EXPECT_EQ(search.mini_batch, 24);
    EXPECT_EQ(search.recompute, SearchConfig::Recompute::None);
    EXPECT_EQ(search.p2p, SearchConfig::P2p::Charged);
    EXPECT_TRUE(search.tensor_parallel);
    EXPECT_EQ(search.replicas, SearchConfig::Replicas::No);
    EXPECT_FALSE(search.straight || search.memory_limit);
    EXPECT_TRUE(search.levels.empty());
}

constexpr const char* kSearch =
    "{workload: {model: mlp}, search: {objective: pipedream, schedules: all, micro_batch_sizes: [2], mini_batch: 64, "
    "stages: [2, 4], replicas: true, recompute: auto, tensor_parallel: false, profile_batch: 16, p2p: free, "
    "straight: true, memory_limit: true, levels: [{devices: 4, bandwidth: 12 GB/s}, {devices: 2, bandwidth: 1.25 "
    "GB/s}]}}";

TEST(Search, ReadsAndPrintsEqualReplicas) {
    const Config config = load("{workload: {model: mlp}, search: {replicas: equal}}");
    EXPECT_EQ(config.search.replicas, SearchConfig::Replicas::Equal);
    EXPECT_EQ(load(config.yaml).search.replicas, SearchConfig::Replicas::Equal);
}

// The text of a setup has no search that the setup does not have.
TEST(Search, IsNoPartOfASetup) {
    const Config config = load("{workload: {model: mlp}, search: {schedules: [gpipe], mini_batch: 64}}");
    EXPECT_TRUE(contains(config.yaml, "search:"));
    EXPECT_FALSE(contains(print_setup(config), "search:"));
    EXPECT_EQ(load(print_setup(load(kSearch))).workload.profile_batch, 16);
}

TEST(Search, ReadsAndPrintsEveryKey) {
    const Config config = load(kSearch);
    EXPECT_EQ(config.workload.profile_batch, 16);
    EXPECT_EQ(load(config.yaml).workload.profile_batch, 16);
    for (const SearchConfig& search : {config.search, load(config.yaml).search}) {
        EXPECT_EQ(search.objective, SearchConfig::Objective::PipeDream);
        EXPECT_EQ(search.schedules, std::vector<std::string>{"all"});
        EXPECT_EQ(search.micro_batch_sizes, std::vector<int>{2});
        EXPECT_EQ(search.mini_batch, 64);
        EXPECT_EQ(search.stages, (std::vector<int>{2, 4}));
        EXPECT_EQ(search.recompute, SearchConfig::Recompute::Auto);
        EXPECT_EQ(search.p2p, SearchConfig::P2p::Free);
        EXPECT_EQ(search.replicas, SearchConfig::Replicas::Yes);
        EXPECT_TRUE(search.straight && search.memory_limit);
        EXPECT_FALSE(search.tensor_parallel);
        EXPECT_EQ(search.levels, (std::vector<SearchConfig::Level>{{4, 12e9}, {2, 1.25e9}}));
    }
}

// The number of stages follows from any key that implies it.
struct StageCase {
    const char* text;
    int stages, devices;
};
class Stages : public testing::TestWithParam<StageCase> {};
TEST_P(Stages, AndDevicesFollow) {
    const Config config = load(GetParam().text);
    EXPECT_EQ(config.pipeline.stages, GetParam().stages) << GetParam().text;
    EXPECT_EQ(config.cluster.devices.size(), static_cast<std::size_t>(GetParam().devices)) << GetParam().text;
}
INSTANTIATE_TEST_SUITE_P(
    Grid, Stages,
    testing::Values(StageCase{"{workload: {model: mlp}, cluster: {devices: 3}}", 3, 3},
                    StageCase{"{workload: {model: mlp}, pipeline: {stages: 4}}", 4, 4},
                    StageCase{"{workload: {model: mlp}, pipeline: {stages: 4}, cluster: {devices: 2}}", 4, 2},
                    StageCase{"{workload: {model: mlp}, pipeline: {split: [fc2, fc3]}}", 3, 3},
                    StageCase{"{workload: {model: mlp}, pipeline: {split: []}}", 1, 1},
                    StageCase{"{workload: {model: mlp}, pipeline: {split: {stages: [[fc1], [fc2]]}}}", 2, 2},
                    StageCase{"{workload: {model: mlp}, pipeline: {replicas: [1, 1, 1]}}", 3, 3},
                    StageCase{"{workload: {model: mlp}, pipeline: {replicas: [2, 1, 3]}}", 3, 6},
                    StageCase{"{workload: {model: mlp}, pipeline: {replicas: [2, 1]}, cluster: {devices: 3}}", 2, 3},
                    StageCase{"{workload: {model: uniform, stages: 5}}", 5, 5},
                    StageCase{"{workload: {model: uniform, stages: 4}, cluster: {devices: 2}}", 4, 2},
                    StageCase{"{workload: {model: uniform, forward: [1 us, 2 us]}}", 2, 2},
                    StageCase{"{workload: {model: uniform}, pipeline: {stages: 3}}", 3, 3},
                    StageCase{"{workload: {model: uniform}, cluster: {devices: [{}, {}]}}", 2, 2}));

TEST(Config, StagesToRecompute) {
    const auto recomputed = [](const char* value) {
        const Config config = load(fmt::format("{{workload: {{model: mlp}}, pipeline: {{stages: 3{}}}}}", value));
        EXPECT_EQ(load(config.yaml).pipeline.recompute, config.pipeline.recompute) << config.yaml;
        return config.pipeline.recompute.stages;
    };
    EXPECT_EQ(recomputed(""), std::vector<int>{});
    EXPECT_EQ(recomputed(", recompute: none"), std::vector<int>{});
    EXPECT_EQ(recomputed(", recompute: []"), std::vector<int>{});
    EXPECT_EQ(recomputed(", recompute: [2, 0, 2]"), (std::vector<int>{0, 2}));
    EXPECT_EQ(recomputed(", recompute: all"), (std::vector<int>{0, 1, 2}));
    EXPECT_TRUE(contains(load("{workload: {model: mlp}, pipeline: {stages: 2, recompute: [1, 0]}}").yaml,
                         "  recompute: all\n"));
}

TEST(Uniform, HasOneValuePerStage) {
    const Config config = load(
        "workload: {model: uniform, stages: 3, forward: [1 us, 2 us, 3 us], activation: 2 MB, "
        "activation_until_weight: 500 kB, output: 10 B, weights: [1 kB, 2 kB, 3 kB]}");
    const UniformWorkload& uniform = config.workload.uniform;
    EXPECT_EQ(uniform.forward, (std::vector<Ns>{1000, 2000, 3000}));
    EXPECT_EQ(uniform.backward_input, (std::vector<Ns>{1000, 1000, 1000}));
    EXPECT_EQ(uniform.activation, (std::vector<Bytes>{2'000'000, 2'000'000, 2'000'000}));
    const Costs costs = uniform_costs(config);
    ASSERT_EQ(costs.stage.size(), 3u);
    for (const StageCost& cost : costs.stage)
        EXPECT_EQ(cost.backward, cost.backward_input + cost.backward_weight);
    EXPECT_EQ(costs.bytes[2].weights, 3000);
    EXPECT_EQ(costs.bytes[2].until_weight, 500'000);
    EXPECT_EQ(costs.bytes[2].until_input, 1'500'000);
    ASSERT_EQ(costs.edges.size(), 2u);
    EXPECT_EQ(costs.edges[1].from, 1);
    EXPECT_EQ(costs.edges[1].to, 2);
    EXPECT_EQ(costs.edges[1].forward, 10);
    EXPECT_EQ(costs.edges[1].backward, 10);
    EXPECT_EQ(costs.dispatch, 0);
}

TEST(Uniform, SpeedsArePerDevice) {
    const Config config = load("{workload: {model: uniform}, cluster: {devices: [{speed: 2}, {}]}}");
    const std::shared_ptr<const Cluster> cluster = cluster_of(config, {});
    EXPECT_EQ(cluster->speed_of(0), 2);
    EXPECT_EQ(cluster->speed_of(1), 1);
}

// The printed effective configuration reads back identically.
class RoundTrip : public testing::TestWithParam<const char*> {};
TEST_P(RoundTrip, IsIdentical) {
    const Config config = load(GetParam());
    EXPECT_EQ(load(config.yaml).yaml, config.yaml);
}
INSTANTIATE_TEST_SUITE_P(
    Grid, RoundTrip,
    testing::Values(
        kFull, "workload: {model: resnet50}",
        "{workload: {model: mlp, dataset: mnist, path: 'a b: #c\\\"'}, cluster: {link: {}}}",
        "{workload: {model: mlp}, pipeline: {split: even, schedule: 'null', stages: 2}}",
        "{workload: {model: mlp}, pipeline: {stages: 3, recompute: [2, 0]}}",
        "{workload: {model: mlp}, pipeline: {stages: 3, recompute: all}}",
        "{workload: {model: mlp}, pipeline: {replicas: [3, 1, 2]}}",
        "{workload: {model: mlp}, training: {batch_norm: deferred, initial: 'saved \"x\"'}}",
        "{workload: {model: mlp}, pipeline: {split: {stages: [[fc1, relu1], [fc2, \"010\"]]}}}",
        "{workload: {model: mlp}, cluster: {link: {bandwidth: 100 Gbit/s, latency: 1.5 us}, compute: 333.3 GFLOP/s}}",
        "{workload: {model: mlp}, training: {learning_rate: 0.333333333333333333, weight_decay: 1e-12, seed: "
        "9223372036854775807}}",
        "{workload: {model: llama, heads: 8, key_value_heads: 2, inner: 300, rotary_base: 500000.5}}",
        "workload: {model: uniform, stages: 2, forward: [1.5 us, 7 ns], activation: 1 GiB, output: 12345 B}"));

TEST(Config, EffectiveConfigurationKeepsValues) {
    const Config config = load(kFull);
    EXPECT_TRUE(contains(config.yaml, "timeout: 1500 ms\n")) << config.yaml;
    EXPECT_TRUE(contains(config.yaml, "{name: a, speed: 0.5, host: left}")) << config.yaml;
    EXPECT_TRUE(contains(config.yaml, "\n  memory: 8 GiB\n")) << config.yaml;
    EXPECT_TRUE(contains(config.yaml, "learning_rate: 0.1\n")) << config.yaml;
}

TEST(Config, OverridesCount) {
    const Config config =
        load("workload: {model: resnet50}", {"pipeline.split=[layer2.0, layer3.0]", "cluster.link.latency=1 us",
                                             "training.steps=3", "workload.dataset=cifar10", "workload.path=data"});
    EXPECT_EQ(config.pipeline.stages, 3);
    EXPECT_EQ(config.cluster.link.latency, 1000);
    EXPECT_EQ(config.training.steps, 3);
    EXPECT_TRUE(std::filesystem::path(config.workload.path).is_absolute());
}

TEST(Config, KeepsPlacesOfKeys) {
    const Config config = load("workload: {model: resnet50}\npipeline:\n  split: [layer2.0, layer3.0]\n");
    EXPECT_EQ(config.places.at("pipeline.split[1]").line, 3);
    EXPECT_EQ(config.places.at("pipeline.split[1]").column, 21);
    EXPECT_EQ(config.places.count("pipeline.stages"), 0u);
    // an absent key points at its parent, and a caller may catch the error and continue
    for (const std::string key : {"pipeline.split[1]", "pipeline.split[7]", "pipeline.stages", "cluster.link.latency"})
        try {
            config.fail_at(key, "this is wrong", "do better");
        } catch (const Error& error) {
            const std::string message = error.what();
            EXPECT_EQ(error.code(), ExitCode::BadInput);
            EXPECT_EQ(message.find("error: "), message.rfind("error: ")) << message;
            EXPECT_TRUE(contains(message, "error: this is wrong\n --> ")) << message;
            EXPECT_EQ(contains(message, "cfg.yaml:3:"), key.starts_with("pipeline")) << message;
        }
}

TEST(Config, ReportsEveryMistakeInOnePass) {
    const std::string message = mistakes(
        "workload: {model: resnet5}\ncluster: {memory: 16}\npipelin: {}\npipeline: {split: layer3.0, micro_batches: "
        "08}\n"
        "run: {backend: gpu}\n");
    std::size_t last = 0;
    for (const char* part : {"did you mean 'resnet50'?", "a number without a unit", "did you mean 'pipeline'?",
                             "'pipeline.split' is 'layer3.0'", "write 8", "'run.backend' is 'gpu'"}) {
        const std::size_t at = message.find(part);
        ASSERT_NE(at, std::string::npos) << part << "\n" << message;
        EXPECT_GT(at, last) << part;
        last = at;
    }
}

// Values are kept as texts that an override reads back.
TEST(Config, ASweepKeepsKeysInTheOrderOfTheFile) {
    const Config config = load(R"(
workload: {model: mlp}
sweep:
  pipeline.split: [auto, [fc2], {stages: [[fc1, relu1], ["a b: c"]]}, ]
  cluster.link.bandwidth: [10 GB/s, inf]
  pipeline.micro_batches: [2, "4", null]
)");
    ASSERT_EQ(config.sweep.size(), 3u);
    EXPECT_EQ(config.sweep[0].key, "pipeline.split");
    EXPECT_EQ(config.sweep[0].texts,
              (std::vector<std::string>{"auto", "[fc2]", "{stages: [[fc1, relu1], [\"a b: c\"]]}"}));
    EXPECT_EQ(config.sweep[1].texts, (std::vector<std::string>{"10 GB/s", "inf"}));
    EXPECT_EQ(config.sweep[2].texts, (std::vector<std::string>{"2", "4", "null"}));
    EXPECT_TRUE(load("workload: {model: mlp}\nsweep:\n").sweep.empty());
    EXPECT_EQ(load("workload: {model: mlp}", {"sweep={pipeline.micro_batches: [1, 2]}"}).sweep.size(), 1u);
    const std::string key = "workload: {model: mlp}\nsweep: {pipeline.split: [[fc2]]}";
    EXPECT_EQ(load(key, {"pipeline.split=" + load(key).sweep[0].texts[0]}).pipeline.cuts,
              std::vector<std::string>{"fc2"});
}

TEST(Config, LaterBlocksAreLeftToTheirCommands) {
    EXPECT_NO_THROW(load("{workload: {model: mlp}, sweep: {a.b: [1]}}"));
    for (const auto& [name, backend] : kChoices<RunConfig::Backend>)
        EXPECT_EQ(load(fmt::format("{{workload: {{model: mlp}}, run: {{backend: {}}}}}", name)).run.backend, backend);
}

}  // namespace
}  // namespace pw
