// parallel.recompute: what a config reads and prints, and what its stages then keep and take.
#include "job/config/config.h"
#include "job/job.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace pw {
namespace {

// Four stages of 20 blocks on a host each.
std::string config_with(const std::string& recompute, const std::string& model = "llama-3-70b") {
    return "{workload: {model: " + model +
           ", sequence_length: 8192}, cluster: {hosts: 4, devices_per_host: 8, device: h100-sxm-80, between: {link: "
           "ndr400, adapters: 8}}, parallel: {tensor: 8, pipeline: 4, recompute: " +
           recompute + "}, pipeline: {mini_batch: 8}, training: {precision: bf16, optimizer: adamw}}";
}

Costs costs_with(const std::string& recompute, const std::vector<std::string>& set = {}) {
    Notices notices;
    return make_job(pw::load(config_with(recompute), set), notices).costs;
}

Bytes kept_by(const Costs& costs, int stage = 1) { return costs.bytes[static_cast<std::size_t>(stage)].until_input; }

}  // namespace

TEST(RecomputedBlocksOfConfigs, AreReadAndPrinted) {
    for (const char* text : {"none", "selective", "norms", "operators", "full", "layernorm+mlp", "core_attn+mlp_act",
                             "{kind: full, share: 0.25}", "{kind: full, every: 2}", "{kind: layernorm+mlp, first: 3}",
                             "{kind: full, group: 4}"}) {
        const Config config = load(config_with(text));
        EXPECT_TRUE(contains(config.yaml, std::string("recompute: ") + text)) << config.yaml;
        EXPECT_EQ(load(config.yaml).yaml, config.yaml);
    }
    EXPECT_EQ(load(config_with("{first: 3}")).parallel.degrees.recompute, set_of(BlockModule::Block));
    EXPECT_TRUE(load(config_with("{kind: full, every: 1}")).parallel.degrees.recomputed.are_all());
}

TEST(RecomputedBlocksOfConfigs, HaveModulesOfTheModel) {
    const auto refused = [](const std::string& recompute, const std::string& model) {
        return refusal([&] { load(config_with(recompute, model)); });
    };
    expect_says(refused("layernorm+mla_up_proj", "llama-3-70b"), {"no block of llama-3-70b has mla_up_proj"});
    expect_says(refused("shared_experts", "mixtral-8x7b"), {"no block of mixtral-8x7b has shared_experts"});
    expect_says(refused("mlp", "mixtral-8x7b"), {"no block of mixtral-8x7b has mlp", "leave mlp out"});
    expect_says(refused("core_attn+layernorm", "mamba2-2.7b"), {"no block of mamba2-2.7b has core_attn"});
    expect_says(refused("layernorm+mlp", "mamba2-2.7b"), {"no block of mamba2-2.7b has mlp"});
    EXPECT_NO_THROW(load(config_with("mlp+core_attn", "nemotron-h-8b")));
    for (const char* recompute : {"norms", "moe_act", "moe+layernorm"})
        EXPECT_NO_THROW(load(config_with(recompute, "mixtral-8x7b"))) << recompute;
}

// A group of five saves one input, of 8192 tokens x 8192 values of two bytes for eight ranks. Stage 1 has four groups.
TEST(RecomputedBlocksOfConfigs, OfAGroupSaveOneInput) {
    const Costs full = costs_with("full"), groups = costs_with("{kind: full, group: 5}");
    EXPECT_EQ(kept_by(full) - kept_by(groups), 4 * 4 * Bytes{2} * 8192 * 8192 / 8);
    EXPECT_EQ(costs_with("{kind: full, group: 20}").bytes[1].until_input,
              kept_by(groups) - 3 * Bytes{2} * 8192 * 8192 / 8);
    const Bytes kept_of_block = (kept_by(costs_with("none")) - kept_by(full)) / 20;
    EXPECT_GT(groups.bytes[1].backward_workspace - full.bytes[1].backward_workspace, 4 * kept_of_block);
    for (std::size_t stage = 0; stage < 4; ++stage)
        EXPECT_EQ(groups.stage[stage].backward, full.stage[stage].backward);
}

// Sizes of layers are rounded up to 64 bytes.
TEST(RecomputedBlocksOfConfigs, OfAStageAreCounted) {
    const Costs none = costs_with("none"), full = costs_with("full");
    const Bytes kept = kept_by(none) - kept_by(full);
    const Ns repeated = full.stage[1].backward - none.stage[1].backward;
    for (const int first : {1, 5, 19}) {
        const Costs some = costs_with("{kind: full, first: " + std::to_string(first) + "}");
        EXPECT_NEAR(static_cast<double>(kept_by(none) - kept_by(some)), static_cast<double>(kept) * first / 20, 2000);
        EXPECT_NEAR(static_cast<double>(some.stage[1].backward - none.stage[1].backward),
                    static_cast<double>(repeated) * first / 20, 40);
    }
    const Costs all = costs_with("{kind: full, first: 20}"), halves = costs_with("{kind: full, every: 2}"),
                share = costs_with("{kind: full, share: 0.5}");
    EXPECT_EQ(kept_by(all), kept_by(full));
    EXPECT_EQ(all.stage[1].backward, full.stage[1].backward);
    EXPECT_NEAR(static_cast<double>(halves.stage[1].backward), static_cast<double>(share.stage[1].backward), 40);
    EXPECT_NEAR(static_cast<double>(kept_by(halves)), static_cast<double>(kept_by(share)), 2000);
}

// The first 15 blocks are all of stage 1, and 15 of 25 of stage 0.
TEST(RecomputedBlocksOfConfigs, AreCountedInUnequalStages) {
    const std::vector<std::string> split = {"pipeline.split=[25, 15, 20, 20]"};
    const Costs none = costs_with("none", split), full = costs_with("full", split),
                first = costs_with("{kind: full, first: 15}", split);
    EXPECT_EQ(kept_by(first, 1), kept_by(full, 1));
    EXPECT_EQ(first.stage[1].backward, full.stage[1].backward);
    EXPECT_NEAR(static_cast<double>(first.stage[0].backward - none.stage[0].backward),
                0.6 * static_cast<double>(full.stage[0].backward - none.stage[0].backward), 40);
}

}  // namespace pw
