// What is recomputed, in the arguments of training programs.
#include "tests/report/argument_texts.h"

#include <gtest/gtest.h>

#include <string>

namespace pw {
namespace {

// Half of the 10 blocks of each stage
TEST(TrainingArguments, OfMegatronRecomputeSomeBlocksOfEachStage) {
    const std::string text =
        text_for("megatron-lm", "llama-3-70b", "tensor: 8, pipeline: 8, zero: 3, recompute: {kind: full, share: 0.5}",
                 "mini_batch: 16");
    for (const char* line : {"--recompute-granularity full", "--recompute-method block", "--recompute-num-layers 5",
                             "--use-megatron-fsdp", "--data-parallel-sharding-strategy optim_grads_params"})
        EXPECT_TRUE(has_line(text, line)) << line << "\n" << text;
}

// The rules that choose blocks are Megatron-LM's methods, and modules have its names.
TEST(TrainingArguments, OfMegatronNameWhatIsRecomputed) {
    const auto lines = [](const std::string& model, const std::string& recompute) {
        const std::string text =
            text_for("megatron-lm", model, "tensor: 8, pipeline: 8, recompute: " + recompute, "mini_batch: 16");
        std::string found;
        for (std::size_t at = text.find("--recompute"); at != std::string::npos; at = text.find("--recompute", at + 1))
            found += text.substr(at + 12, text.find('\n', at) - at - 12) + "; ";
        return found;
    };
    EXPECT_EQ(lines("llama-3-70b", "{kind: full, first: 3}"), "granularity full; method block; num-layers 3; ");
    EXPECT_EQ(lines("llama-3-70b", "{kind: full, group: 5}"), "granularity full; method uniform; num-layers 5; ");
    EXPECT_EQ(lines("llama-3-70b", "{kind: full, every: 2}"), "granularity full; method block; num-layers 5; ");
    EXPECT_EQ(lines("llama-3-70b", "full"), "granularity full; method uniform; num-layers 1; ");
    EXPECT_EQ(lines("llama-3-70b", "core_attn"), "activations; ");
    EXPECT_EQ(lines("llama-3-70b", "mlp+layernorm"), "granularity selective; modules layernorm mlp; ");
    EXPECT_EQ(lines("llama-3-70b", "none"), "");
}

TEST(TrainingArguments, OfTorchtitanRecomputeOperatorsOrBlocks) {
    const auto has = [](const std::string& recompute, const std::string& line) {
        return has_line(text_for("torchtitan", "llama-3-8b", "zero: 3, release: torchtitan, recompute: " + recompute,
                                 "mini_batch: 64"),
                        line);
    };
    EXPECT_TRUE(has("operators", "selective_ac_option = \"op\""));
    EXPECT_TRUE(has("operators", "mode = \"selective\""));
    EXPECT_TRUE(has("{kind: full, every: 3}", "selective_ac_option = \"3\""));
    EXPECT_TRUE(has("full", "mode = \"full\""));
    for (const char* recompute : {"norms", "{kind: full, first: 2}", "{kind: operators, every: 2}"})
        expect_says(
            refusal_of("torchtitan", "llama-3-8b", fmt::format("zero: 3, recompute: {}", recompute), "mini_batch: 64"),
            {"recomputes operators, or whole blocks", "{kind: full, every: n}"});
}

}  // namespace
}  // namespace pw
