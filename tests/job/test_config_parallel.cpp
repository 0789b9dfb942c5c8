// Transformers on clusters in configs: degrees, devices and mistakes.
#include "job/build.h"
#include "job/config/config.h"
#include "job/job.h"
#include "job/transformer_job.h"

#include "tests/support/config_text.h"
#include "tests/support/refusal.h"

#include <gtest/gtest.h>

#include <string>

namespace pw {
namespace {

std::string text_of(const std::string& parallel, const std::string& pipeline, const std::string& more = "") {
    return "{workload: {model: llama-3-70b, sequence_length: 8192}, cluster: {hosts: 8, devices_per_host: 8, device: "
           "h100-sxm-80, between: {link: ndr400, adapters: 8}}, parallel: {" +
           parallel + "}, pipeline: {" + pipeline + "}, training: {precision: bf16, optimizer: adamw}" + more + "}";
}

constexpr const char* kPlan = "tensor: 4, pipeline: 4, context: 2, zero: 1";
constexpr const char* kBatch = "schedule: interleaved, stages: 20, mini_batch: 128, micro_batch_size: 1";

TEST(Parallel, MakesADeviceOfThePlanForEachStageOfThePipeline) {
    const Config config = load(text_of(kPlan, kBatch));
    EXPECT_EQ(config.cluster.devices.size(), 4u);
    EXPECT_EQ(config.parallel.ranks->devices.size(), 64u);
    EXPECT_EQ(config.parallel.degrees.data, 2);
    EXPECT_TRUE(config.parallel.degrees.sequence) << "the default with tensor parallelism";
    EXPECT_EQ(config.pipeline.micro_batches, 64) << "of one replica";
    EXPECT_EQ(config.pipeline.stages, 20);
    const TransformerJob job = transformer_job_of(config);
    EXPECT_EQ(job.fabric.inside_name, "nvlink4");
    EXPECT_EQ(job.fabric.domain, 8);
    EXPECT_EQ(job.tokens, 8192);
}

// The table of the kind's own link counts, whatever the bandwidth: a faster link is not slower.
TEST(Parallel, BandwidthOfALinkScalesItsMeasuredCollectives) {
    const auto forward = [](const std::string& link) {
        Notices notices;
        const Job job = make_job(load(text_of("tensor: 8", "mini_batch: 8"), {"cluster.link=" + link}), notices);
        return job.costs.stage[0].forward;
    };
    const Ns named = forward("nvlink4");
    EXPECT_EQ(forward("{bandwidth: 450 GB/s, latency: 3400 ns}"), named);
    const Ns faster = forward("{bandwidth: 451 GB/s, latency: 3400 ns}");
    EXPECT_LT(faster, named);
    EXPECT_GT(static_cast<double>(faster), 0.999 * static_cast<double>(named));
    EXPECT_GT(forward("{bandwidth: 225 GB/s, latency: 3400 ns}"), named);
    EXPECT_GT(forward("{bandwidth: 450 GB/s, latency: 10 us}"), named);
}

TEST(Parallel, IsPrintedAsTheClusterThatItIsOf) {
    const Config config = load(text_of(kPlan, kBatch));
    const Config again = load(config.yaml);
    EXPECT_EQ(again.yaml, config.yaml);
    EXPECT_EQ(again.parallel.degrees.data, 2);
    EXPECT_EQ(again.pipeline.micro_batches, 64);
    EXPECT_EQ(again.parallel.ranks->devices.size(), 64u);
}

TEST(Parallel, ReadsWhatIsRecomputedAndOverlapped) {
    const Config config = load(text_of(std::string(kPlan) + ", recompute: {kind: full, share: 0.5}, overlap: [data, "
                                                            "expert], release: nemo-2024, attention: flash",
                                       kBatch));
    const Parallel& parallel = config.parallel.degrees;
    EXPECT_EQ(parallel.recompute, set_of(BlockModule::Block));
    EXPECT_EQ(parallel.recomputed, (RecomputedBlocks{BlockRule::Share, 0.5}));
    EXPECT_EQ(parallel.program().overlap, (Overlap{.data = true, .expert = true}));
    EXPECT_EQ(parallel.program().attention, AttentionKernels::Flash);
    EXPECT_EQ(load(config.yaml).yaml, config.yaml);
}

TEST(Parallel, ReadsLoadsOfExperts) {
    const auto with = [](const std::string& load_of) {
        return load(
            "{workload: {model: mixtral-8x7b, sequence_length: 4096}, cluster: {hosts: 1, devices_per_host: 8, "
            "device: h100-sxm-80}, parallel: {expert: 8, expert_kernels: sequential, expert_load: " +
            load_of + "}, pipeline: {mini_batch: 8}, training: {precision: bf16}}");
    };
    for (const char* written : {"1.5", "{skew: 0.5, seed: 3}"}) {
        const Config config = with(written);
        EXPECT_EQ(load(config.yaml).yaml, config.yaml);
        EXPECT_EQ(config.parallel.degrees.program().experts, ExpertKernels::Sequential);
    }
    EXPECT_EQ(with("1.5").parallel.degrees.expert_load, 1.5);
    EXPECT_EQ(with("{skew: 0.5, seed: 3}").parallel.degrees.expert_draw, (ExpertDraw{0.5, 3}));
    EXPECT_TRUE(contains(refusal([&] { with("0.5"); }), "parallel.expert_load"));
    EXPECT_TRUE(contains(refusal([&] { with("{skew: -1}"); }), "parallel.expert_load.skew"));
    EXPECT_TRUE(contains(refusal([&] { with("{zipf: 1}"); }), "zipf"));
}

TEST(Parallel, GivesStagesEquallyManyBlocks) {
    const auto stages_of = [](int layers, int stages) {
        const std::string model = fmt::format(
            "{{workload: {{model: {}, sequence_length: 2048}}, cluster: {{hosts: 8, devices_per_host: 8, "
            "device: h100-sxm-80, between: ndr400}}, parallel: {{pipeline: {}}}, pipeline: {{mini_batch: "
            "512}}, training: {{precision: bf16}}}}",
            layers == 126 ? "llama-3.1-405b" : "llama-3-70b", stages);
        const Config config = load(model);
        const Model built = build_model(config);
        std::vector<std::size_t> counts;
        for (const std::vector<int>& layers_of_stage : make_split(config, built, profile_of(config, built)).layers)
            counts.push_back(layers_of_stage.size());
        return counts;
    };
    EXPECT_EQ(stages_of(80, 4), (std::vector<std::size_t>{21, 20, 20, 21})) << "embedding and head in addition";
    EXPECT_EQ(stages_of(126, 32), std::vector<std::size_t>(32, 4)) << "128 slots, as in published runs of this model";
}

// A printed config has the stages of the config. `split: auto` divides by times.
TEST(Parallel, PrintsNoSplitWhereTheConfigHasNone) {
    const auto split_of = [](const Config& config) {
        const Model built = build_model(config);
        return make_split(config, built, profile_of(config, built)).layers;
    };
    const Config equal = load(text_of("pipeline: 4", "mini_batch: 64"));
    const Config by_times = load(text_of("pipeline: 4", "mini_batch: 64, split: auto"));
    EXPECT_EQ(split_of(load(equal.yaml)), split_of(equal));
    EXPECT_EQ(split_of(load(by_times.yaml)), split_of(by_times));
    EXPECT_NE(split_of(equal), split_of(by_times));
}

std::string text_with(const std::string& workload, const std::string& parallel, const std::string& pipeline) {
    return "{workload: {sequence_length: 4096, " + workload +
           "}, cluster: {hosts: 8, devices_per_host: 8, device: h100-sxm-80, memory: inf, between: ndr400}, parallel: "
           "{" +
           parallel + "}, pipeline: {" + pipeline + "}, training: {precision: bf16, optimizer: adamw}}";
}

// Megatron-Core has the modules on the last stage if no layout says otherwise.
TEST(Parallel, PlacesModulesOfFurtherTokensOnTheLastStage) {
    const std::string model = "model: deepseek-v3, mtp_layers: 2";
    const auto last_layers = [&](const std::string& written) {
        const Config config = load(text_with(model, "pipeline: 4, expert: 16", "mini_batch: 64" + written));
        EXPECT_EQ(load(config.yaml).yaml, config.yaml);
        const Model built = build_model(config);
        std::vector<std::string> names;
        const StageSplit split = make_split(config, built, profile_of(config, built));
        for (const int layer : split.layers.back())
            names.push_back(built.layers[static_cast<std::size_t>(layer)].name);
        return names;
    };
    const std::vector<std::string> ends = {"mtp.0", "mtp.1", "head"};
    for (const char* split : {"", ", split: [20, 20, 10, 11]", ", split: Et*20|t*20|t*10|t*11mmL"}) {
        const std::vector<std::string> names = last_layers(split);
        EXPECT_EQ(std::vector<std::string>(names.end() - 3, names.end()), ends) << split;
        EXPECT_GT(names.size(), 12u);
    }
    EXPECT_EQ(last_layers(", split: Et*20|t*20|t*21m|mL"), (std::vector<std::string>{"mtp.1", "head"}));
    EXPECT_TRUE(contains(refusal([&] { last_layers(", split: Et*20|t*20|t*10|t*11mL"); }),
                         "the layout has 1 modules m of further tokens, the model 2"));
    EXPECT_TRUE(contains(refusal([] { load("{workload: {model: mlp, mtp_layers: 1}}"); }), "belongs to transformers"));
    EXPECT_TRUE(contains(refusal([] { load("{workload: {model: deepseek-v3, mtp_num_layers: 1}}"); }), "mtp_layers"));
}

TEST(Parallel, DividesHeadsOfMamba) {
    const auto refused = [](const std::string& workload, const std::string& parallel) {
        return refusal([&] { load(text_with(workload, parallel, "mini_batch: 64")); });
    };
    EXPECT_EQ(load(text_with("model: mamba2-2.7b", "tensor: 16", "mini_batch: 64")).parallel.degrees.tensor, 16);
    expect_says(refused("model: mamba2-2.7b", "tensor: 32"), {"does not divide the 80 heads of mamba2-2.7b"});
    expect_says(refused("model: nemotron-h-8b", "tensor: 64"),
                {"does not divide the heads of attention and of Mamba-2 of nemotron-h-8b", "write a divisor of 32"});
    expect_says(refused("model: nemotron-h-8b", "context: 2"), {"whose sequences are not divided", "remove the key"});
    expect_says(refused("model: nemotron-h-8b, lora: {rank: 8}", "tensor: 2"), {"have no adapters", "remove the key"});
}

TEST(Parallel, DividesExpertsAmongTheirRanks) {
    const auto with = [](const std::string& parallel) {
        return load(
            "{workload: {model: mixtral-8x7b, sequence_length: 4096}, cluster: {hosts: 1, devices_per_host: 8, "
            "device: h100-sxm-80}, parallel: {" +
            parallel + "}, pipeline: {mini_batch: 8}, training: {precision: bf16}}");
    };
    const Config config = with("tensor: 4, expert: 2, expert_tensor: 4, expert_dispatcher: alltoall");
    EXPECT_EQ(config.parallel.degrees.expert_tensor, 4);
    EXPECT_EQ(config.parallel.degrees.program().dispatcher, ExpertDispatcher::AllToAll);
    EXPECT_EQ(load(config.yaml).yaml, config.yaml);
    EXPECT_FALSE(contains(with("tensor: 4, expert_tensor: 1").yaml, "expert_tensor"));
    const auto refused = [&](const std::string& parallel) { return refusal([&] { with(parallel); }); };
    expect_says(refused("expert: 4, expert_tensor: 4"),
                {"'parallel.expert' 4 x 'parallel.expert_tensor' 4 are 16 devices", "do not divide the 8 devices",
                 "write a divisor of 2"});
    expect_says(refused("expert: 8, expert_tensor: 14336"), {"are 114688 devices"});
    expect_says(refused("expert: 1000000, expert_tensor: 1000000"), {"does not divide the 8 experts"});
    expect_says(refused("expert_tensor: 3"), {"does not divide the width 14336 of an expert of mixtral-8x7b"});
    expect_says(refused("expert: 8, pipeline: 4"), {"'parallel.expert' is 8", "does not divide the 2 devices"});
    expect_says(refused("expert_dispatcher: allgather"), {"expert_dispatcher", "gathered"});
    expect_says(refusal([&] { load(text_of("tensor: 4, expert_tensor: 4", kBatch)); }),
                {"llama-3-70b has no experts", "remove the key"});
}

TEST(Parallel, RefusesWhatDoesNotFit) {
    const auto refused = [](const std::string& parallel, const std::string& pipeline = kBatch) {
        return refusal([&] { load(text_of(parallel, pipeline)); });
    };
    EXPECT_TRUE(contains(refused("tensor: 3, pipeline: 4"), "do not divide the 64 of the cluster"));
    EXPECT_TRUE(contains(refused("tensor: 64, expert: 2"), "llama-3-70b has no experts"));
    EXPECT_TRUE(contains(refused("pipeline: 4, zero: 4"), "zero"));
    EXPECT_TRUE(contains(refused("pipeline: 4", "mini_batch: 100"), "take multiples of 16"));
    const Config deep = load(text_of("pipeline: 64", "mini_batch: 128, stages: 128"));
    EXPECT_TRUE(contains(refusal([&] { make_split(deep, build_model(deep), {}); }), "80 blocks cannot be divided"));
    EXPECT_TRUE(contains(refused("release: nemo-1999"), "nemo-2025"));
    EXPECT_TRUE(contains(refused("overlap: [tensors]"), "tensor"));
    EXPECT_TRUE(contains(refusal([] { load("{workload: {model: mlp}, parallel: {tensor: 2}}"); }), "for transformers"));
    EXPECT_TRUE(contains(refusal([] { load("{workload: {model: llama-3-70b}, parallel: {tensor: 2}}"); }),
                         "'cluster.device' is missing"));
}

// The memory of a kind is what PyTorch reports; libraries and the allocator's gaps take their part. A limit of the
// user's is taken as it is.
TEST(Parallel, LeavesMemoryToLibraries) {
    const Bytes reported = load(text_of(kPlan, kBatch)).cluster.kind->memory;
    EXPECT_EQ(load(text_of(kPlan, kBatch)).cluster.devices[0].memory, (reported - (Bytes{2} << 30)) * 100 / 103);
    std::string own = text_of(kPlan, kBatch);
    own.replace(own.find("device: h100"), 7, "memory: 70 GiB, device:");
    EXPECT_EQ(load(own).cluster.devices[0].memory, Bytes{70} << 30);
}

}  // namespace
}  // namespace pw
