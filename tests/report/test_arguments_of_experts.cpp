// Experts in the arguments of training programs.
#include "tests/report/argument_texts.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <string>

namespace pw {
namespace {

// DeepSeek-V3: 3 dense layers, then 58 with experts; 8 stages of 63 / 8 blocks are cut by balance
TEST(TrainingArguments, OfMegatronHaveExpertsAndCompressedAttention) {
    const std::string text =
        text_for("megatron-lm", "deepseek-v3", "pipeline: 8, expert: 8, zero: 1, recompute: selective",
                 "mini_batch: 64, split: auto");
    for (const char* line :
         {"--expert-model-parallel-size 8", "--expert-tensor-parallel-size 1", "--num-experts 256",
          "--moe-router-topk 8", "--moe-ffn-hidden-size 2048", "--moe-shared-expert-intermediate-size 2048",
          "--moe-layer-freq [0]*3+[1]*58", "--moe-grouped-gemm", "--moe-token-dispatcher-type flex",
          "--moe-enable-deepep", "--multi-latent-attention", "--q-lora-rank 1536", "--kv-lora-rank 512",
          "--qk-head-dim 128", "--qk-pos-emb-head-dim 64", "--v-head-dim 128", "--recompute-activations"})
        EXPECT_TRUE(has_line(text, line)) << line << "\n" << text;
    EXPECT_FALSE(contains(text, "--kv-channels"));
}

TEST(TrainingArguments, OfMegatronHaveTheWidthOfExpertsInputs) {
    const TemporaryFolder folder;
    const std::string model = folder.write("config.json", R"({"model_type": "mixtral", "hidden_size": 4096,
 "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
 "num_local_experts": 8, "num_experts_per_tok": 2, "moe_latent_size": 1024, "vocab_size": 32000})");
    EXPECT_TRUE(
        has_line(text_for("megatron-lm", model, "expert: 8, zero: 1", "mini_batch: 64"), "--moe-latent-size 1024"));
    EXPECT_FALSE(contains(text_for("megatron-lm", "mixtral-8x7b", "expert: 8, zero: 1", "mini_batch: 64"), "latent"));
}

// Megatron-LM's combined 1F1B (combined_1f1b.py) needs several stages on a rank and experts on several ranks.
TEST(TrainingArguments, HavePairsOfInterleavedPasses) {
    const auto written = [](const std::string& parallel, const std::string& pipeline) {
        return text_for("megatron-lm", "mixtral-8x7b", "pipeline: 4, zero: 1, " + parallel,
                        "schedule: interleaved, mini_batch: 64, " + pipeline);
    };
    const auto refused = [](const std::string& program, const std::string& model, const std::string& parallel,
                            const std::string& pipeline) {
        return refusal_of(program, model, "pipeline: 4, " + parallel,
                          "schedule: interleaved, mini_batch: 64, " + pipeline);
    };
    EXPECT_TRUE(has_line(written("expert: 8", "stages: 8, pairs: true"), "--overlap-moe-expert-parallel-comm"));
    EXPECT_FALSE(contains(written("expert: 8", "stages: 8"), "--overlap-moe"));
    EXPECT_FALSE(contains(written("expert: 8", "stages: 8, pairs: false"), "--overlap-moe"));
    expect_says(refused("megatron-lm", "mixtral-8x7b", "zero: 1", "stages: 8, pairs: true"),
                {"runs pairs of passes only with expert parallelism", "pairs: true", "write parallel.expert above 1"});
    expect_says(refused("megatron-lm", "mixtral-8x7b", "zero: 1, expert: 8, recompute: full", "stages: 8, pairs: true"),
                {"recomputes no blocks while messages of experts overlap passes", "remove pipeline.pairs"});
    expect_says(
        refused("torchtitan", "qwen3-30b-a3b", "zero: 3, expert: 4, release: torchtitan", "stages: 8, pairs: true"),
        {"one order of Interleaved1F1B", "pairs: true", "remove the key"});
}

// Parts of experts and dispatchers. Without expert parallelism, ranks that gather tokens need no all-to-all.
TEST(TrainingArguments, HavePartsOfExperts) {
    const auto megatron = [](const std::string& parallel) {
        return text_for("megatron-lm", "mixtral-8x7b", "tensor: 4, zero: 1, " + parallel, "mini_batch: 64");
    };
    EXPECT_TRUE(has_line(megatron("expert: 2, expert_tensor: 4"), "--expert-tensor-parallel-size 4"));
    EXPECT_TRUE(has_line(megatron("expert: 2, expert_tensor: 4"), "--moe-token-dispatcher-type flex"));
    EXPECT_TRUE(has_line(megatron("expert_tensor: 4"), "--moe-enable-deepep"));
    const std::string copies = megatron("expert: 2, expert_dispatcher: alltoall");
    EXPECT_TRUE(has_line(copies, "--expert-tensor-parallel-size 1"));
    EXPECT_TRUE(has_line(copies, "--moe-token-dispatcher-type alltoall"));
    EXPECT_FALSE(contains(copies, "deepep"));
    EXPECT_TRUE(
        has_line(megatron("expert_tensor: 4, expert_dispatcher: gathered"), "--moe-token-dispatcher-type allgather"));
    const auto refused = [](const std::string& program, const std::string& model, const std::string& parallel) {
        return refusal_of(program, model, "tensor: 4, " + parallel, "mini_batch: 64");
    };
    expect_says(refused("megatron-lm", "mixtral-8x7b", "expert: 2, expert_dispatcher: gathered"),
                {"gathers no tokens", "write expert_dispatcher: alltoall or deepep"});
    expect_says(refused("megatron-lm", "mixtral-8x7b", "expert_tensor: 4, overlap: [expert]"),
                {"only with expert parallelism", "write parallel.expert above 1"});
    const auto titan = [](const std::string& parallel) {
        return text_for("torchtitan", "qwen3-30b-a3b", "tensor: 4, zero: 3, release: torchtitan, " + parallel,
                        "mini_batch: 64");
    };
    EXPECT_TRUE(has_line(titan("expert: 2, expert_tensor: 4"), "expert_tensor_parallel_degree = 4"));
    EXPECT_TRUE(has_line(titan("expert_tensor: 4"), "expert_parallel_degree = 1"));
    const std::string model = "qwen3-30b-a3b", three = "zero: 3, release: torchtitan, ";
    expect_says(refused("torchtitan", model, three + "expert: 1"),
                {"parallel.expert", "write parallel.expert_tensor: 4"});
    expect_says(refused("torchtitan", model, three + "expert: 2, expert_tensor: 2"),
                {"all 4 ranks of tensor parallelism or none", "write 1 or 4"});
    expect_says(refused("torchtitan", model, three + "expert: 4, expert_dispatcher: deepep"),
                {"gathers the tokens", "write expert_dispatcher: gathered"});
    expect_says(refusal_of("deepspeed", "mixtral-8x7b", "expert: 2, expert_dispatcher: deepep", "mini_batch: 64"),
                {"a copy for each expert", "write expert_dispatcher: alltoall"});
    expect_says(refused("deepspeed", "mixtral-8x7b", "expert: 2, expert_tensor: 2, zero: 1"),
                {"DeepSpeed divides the width of an expert", "write 1 or 4"});
}

}  // namespace
}  // namespace pw
