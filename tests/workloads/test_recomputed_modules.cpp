// What recomputed modules of a block free and repeat, and which blocks recompute, by hand counts and laws.
#include "tests/support/transformer_jobs.h"
#include "workloads/transformers/transformer_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace pw {
namespace {

constexpr double kKernelEnd = 2.2e-6;          // of a kernel
constexpr double kReadRate = 0.75 * 2.039e12;  // of an A100

// A GPT of two stages of four blocks on a rank.
TransformerJob gpt() {
    TransformerJob job = job_on_host("a100-sxm-80", "nvlink3");
    job.model.name = "gpt";
    job.model.hidden = 1024;
    job.model.layers = 8;
    job.model.heads = job.model.key_value_heads = 16;
    job.model.head_width = 64;
    job.model.ffn = 4096;
    job.model.vocabulary = 51'200;
    job.model.positions = 2048;
    job.model.bias = job.model.tied = true;
    job.tokens = 2048;
    job.parallel.release = Release::Megatron2022;
    job.stage_of = {0, 0, 0, 0, 0, 1, 1, 1, 1, 1};
    return job;
}

TransformerJob llama(Release release) {
    TransformerJob job = job_on_host("a100-sxm-80", "nvlink3");
    job.model = *find_transformer("llama-2-13b");
    job.tokens = 4096;
    job.parallel.release = release;
    return job;
}

TransformerJob deepseek() {
    TransformerJob job = job_on_host("a100-sxm-80", "nvlink3");
    job.model = *find_transformer("deepseek-v3");
    job.tokens = 4096;
    job.parallel.release = Release::NeMo2025;
    return job;
}

TransformerLayerCost block_with(TransformerJob job, std::string_view modules, int block = 0) {
    job.parallel.recompute = *parse_modules(modules);
    return TransformerLayers(job).all(1)[static_cast<std::size_t>(block) + 1];
}

// Returns the bytes per token that recomputing these modules frees.
double freed(const TransformerJob& job, std::string_view modules, int block = 0) {
    return (block_with(job, "none", block).saved - block_with(job, modules, block).saved) / job.tokens;
}

double repeated(const TransformerJob& job, std::string_view modules, int block = 0) {
    return block_with(job, modules, block).parts.again;
}

std::vector<TransformerLayerCost> layers_with(TransformerJob job, BlockRule rule, double number,
                                              std::string_view modules = "full") {
    job.parallel.recompute = *parse_modules(modules);
    job.parallel.recomputed = {rule, number};
    return TransformerLayers(job).all(1);
}

}  // namespace

// Section 4.1 of arXiv 2205.05198 counts, for each token of h values: the inputs of QKV and of the first product of the
// MLP 2 h each, the input of GELU and the input of the second product 8 h each, and softmax, its mask and its output 5
// a s. A checkpoint of the MLP keeps its input.
TEST(RecomputedModules, FreeWhatThePaperCounts) {
    const TransformerJob job = gpt();
    const double h = 1024, a = 16, s = 2048;
    EXPECT_DOUBLE_EQ(freed(job, "layernorm"), 4 * h);
    EXPECT_DOUBLE_EQ(freed(job, "core_attn"), 5 * a * s);
    EXPECT_DOUBLE_EQ(freed(job, "mlp_act"), 8 * h);
    EXPECT_DOUBLE_EQ(freed(job, "mlp"), 16 * h);
    EXPECT_DOUBLE_EQ(freed(job, "mlp+mlp_act"), 16 * h) << "what both make is freed once";
    EXPECT_DOUBLE_EQ(freed(job, "layernorm+core_attn+mlp"), 20 * h + 5 * a * s);
    EXPECT_DOUBLE_EQ(freed(job, "full"), 32 * h + 5 * a * s) << "34 h and 5 a s, and the input stays";
    for (const char* modules : {"layernorm", "core_attn", "mlp", "full"})
        EXPECT_DOUBLE_EQ(block_with(job, modules).scratch, freed(job, modules) * s) << modules;
}

// The MLP repeats two products and GELU, which reads and writes 4 h values of two bytes; in all four kernels end.
TEST(RecomputedModules, RepeatTheirKernels) {
    const TransformerJob job = gpt();
    const KernelTimes kernels(job);
    const double products = kernels.linear(2048, 1024, 4096, 1).forward + kernels.linear(2048, 4096, 1024, 1).forward;
    const double gelu = 2 * 2.0 * 2048 * 4096 / kReadRate;
    EXPECT_NEAR(repeated(job, "mlp"), products + gelu + 3 * kKernelEnd, 1e-12);
    EXPECT_NEAR(repeated(job, "mlp_act"), gelu + kKernelEnd, 1e-12);
    EXPECT_NEAR(repeated(job, "core_attn"), kernels.attention({0, 2048}, 1, 16, 64, 64, 0).forward, 1e-12);
    EXPECT_NEAR(repeated(job, "layernorm+mlp"), repeated(job, "layernorm") + repeated(job, "mlp"), 1e-12);
}

// One kernel of attention keeps four bytes for each query and head, and its checkpoint repeats it all the same.
TEST(RecomputedModules, RepeatFusedAttention) {
    TransformerJob job = gpt();
    job.parallel.release = Release::NeMo2025;
    EXPECT_DOUBLE_EQ(freed(job, "core_attn"), 4 * 16);
    EXPECT_NEAR(repeated(job, "core_attn"), KernelTimes(job).attention({0, 2048}, 1, 16, 64, 64, 0).forward, 1e-12);
}

// torchtitan counts the products wq, wk, wv, wo, w1, w3, w2 of a block and keeps the odd ones: wq, wv, w1, w2 (h, h, f
// and h values), and attention with its output and four bytes for each head. It repeats wk, wo, w3. A compiler drops
// the output of w2, which nothing reads.
TEST(RecomputedModules, KeepEverySecondProductAndAttention) {
    const double h = 5120, f = 13'824, heads = 40;
    const TransformerJob eager = llama(Release::TorchTitan), compiled = llama(Release::TorchTitanCompiled);
    EXPECT_DOUBLE_EQ(block_with(compiled, "operators").saved / 4096, 2 * (3 * h + f) + 4 * heads);
    EXPECT_DOUBLE_EQ(block_with(eager, "operators").saved / 4096, 2 * (4 * h + f) + 4 * heads);
    const KernelTimes kernels(compiled);
    const double products = kernels.linear(4096, h, 3 * h, 1).forward / 3 + kernels.linear(4096, h, h, 1).forward +
                            kernels.linear(4096, h, 2 * f, 1).forward / 2;
    EXPECT_GT(repeated(compiled, "operators"), products);
    EXPECT_LT(repeated(compiled, "operators"), 1.15 * products) << "norms, rotation and activation in addition";
    EXPECT_LT(repeated(compiled, "operators"), 0.6 * repeated(compiled, "full"));
}

// 128 heads have queries and keys of 128 + 64 values and values of 128. Compressed, they are 1536 and 512 + 64.
TEST(RecomputedModules, ProjectLatentAttentionUpAgain) {
    const TransformerJob job = deepseek();
    EXPECT_DOUBLE_EQ(freed(job, "mla_up_proj"), 2 * 128.0 * (192 + 192 + 128));
    const KernelTimes kernels(job);
    const double products =
        kernels.linear(4096, 1536, 128 * 192, 1).forward + kernels.linear(4096, 512, 128 * 256, 1).forward;
    EXPECT_GT(repeated(job, "mla_up_proj"), products);
    EXPECT_LT(repeated(job, "mla_up_proj"), 1.5 * products) << "and the rotation";
}

// Blocks 0 to 2 have an MLP of 18432, the remaining ones 8 of 256 experts of 2048 for each token, and a shared one. A
// gated MLP keeps two outputs of its first products and the input of the last.
TEST(RecomputedModules, OfExpertsAreThoseOfBlocksWithExperts) {
    const TransformerJob job = deepseek();
    EXPECT_DOUBLE_EQ(freed(job, "mlp"), 2 * 3 * 18'432.0);
    EXPECT_EQ(freed(job, "mlp", 3), 0);
    EXPECT_EQ(freed(job, "moe"), 0);
    EXPECT_DOUBLE_EQ(freed(job, "moe_act", 3), 2 * 8 * 2048.0);
    EXPECT_DOUBLE_EQ(freed(job, "mlp_act", 3), 2 * 2048.0) << "of the shared expert";
    EXPECT_DOUBLE_EQ(freed(job, "shared_experts", 3), 2 * 3 * 2048.0);
    // Routed and shared experts, and the 8 copies of a token before and after the products.
    EXPECT_DOUBLE_EQ(freed(job, "moe", 3), 2 * 3 * 9 * 2048.0 + 2 * 2 * 8 * 7168.0);
    EXPECT_GT(repeated(job, "moe", 3), repeated(job, "shared_experts", 3) + repeated(job, "moe_act", 3));
}

// A layer of Mamba-2 with 32 heads of 64 values makes 2 x 2048 + 2 x 128 + 32 values in its first product. It keeps the
// output of the norm, these values, and 2048 values after the scan and after its norm, with a convolution and a scan
// that full recomputation alone repeats.
TEST(RecomputedModules, OfMambaAreItsNormAndItsSecondProduct) {
    TransformerJob job = gpt();
    job.parallel.release = Release::NeMo2025;
    job.model.mamba = Mamba{.heads = 32, .head_width = 64, .groups = 1, .state = 128, .kernel = 4, .chunk = 256};
    job.model.forms = {{Mixer::Mamba, Feed::None}, {Mixer::Mamba, Feed::Mlp}};
    const double h = 1024, first = 2 * 2048 + 2 * 128 + 32, norm = 2 * 2.0 * 2048 * h / kReadRate + kKernelEnd;
    EXPECT_DOUBLE_EQ(freed(job, "layernorm"), 2 * h);
    EXPECT_NEAR(repeated(job, "layernorm"), norm, 1e-12);
    EXPECT_DOUBLE_EQ(freed(job, "norms"), 2 * h);
    EXPECT_EQ(freed(job, "selective"), 0);
    EXPECT_EQ(repeated(job, "selective"), 0);
    EXPECT_DOUBLE_EQ(freed(job, "full"), 2 * (h + first + 2 * 2048));
    const KernelTimes kernels(job);
    const double scan = kernels.scan(2048, *job.model.mamba).forward;
    const double second = kernels.linear(2048, 2048, 1024, 1).forward + kKernelEnd;
    EXPECT_DOUBLE_EQ(freed(job, "operators"), 2 * h);
    EXPECT_NEAR(repeated(job, "operators"), norm + second, 1e-12);
    EXPECT_GT(repeated(job, "full"), norm + second + scan);
    // With an MLP, the third product of the layer is kept. The residual stream between follows from the second.
    EXPECT_DOUBLE_EQ(freed(job, "operators", 1), 3 * 2 * h + 2 * 4 * h);
}

// Norms after attention and after the MLP read outputs of products, and are of no module but operators. torchtitan
// would keep the output of w2, the seventh product, for its norm. wo is the fourth.
TEST(RecomputedModules, AreNormsBeforeTheParts) {
    TransformerJob job = gpt();
    const double before = repeated(job, "layernorm");
    job.model.post_norms = true;
    EXPECT_DOUBLE_EQ(freed(job, "layernorm"), 4 * 1024);
    EXPECT_EQ(repeated(job, "layernorm"), before);
    for (const Release release : {Release::TorchTitan, Release::TorchTitanCompiled}) {
        TransformerJob titan = llama(release);
        titan.model.post_norms = true;
        EXPECT_DOUBLE_EQ(block_with(titan, "operators").saved / 4096, 2 * (4 * 5120.0 + 13'824) + 4 * 40);
    }
}

// Megatron-LM of 2021 hides no messages: the MLP sums its output once in each pass, a quarter of a block's messages. If
// attention and MLP are summed together, the sum is of neither.
TEST(RecomputedModules, OfParallelPartsRepeatNoMessages) {
    TransformerJob job = gpt();
    job.parallel.release = Release::Megatron2021;
    job.parallel.tensor = 8;
    const double in_turn = repeated(job, "mlp"), messages = block_with(job, "mlp").parts.tensor;
    EXPECT_GT(messages, 0);
    job.model.parallel = true;
    EXPECT_NEAR(repeated(job, "mlp"), in_turn - messages / 4, 1e-12);
}

TEST(RecomputedModules, AreWordsJoinedByPlus) {
    EXPECT_EQ(print_modules(*parse_modules("mlp+layernorm")), "layernorm+mlp");
    EXPECT_EQ(print_modules(*parse_modules("core_attn")), "selective");
    EXPECT_EQ(print_modules(*parse_modules("moe_act+mlp_act+layernorm")), "norms");
    EXPECT_EQ(print_modules(*parse_modules("selective+mlp")), "core_attn+mlp");
    for (const char* text : {"", "+", "mlp+", "+mlp", "mlp,moe", "blocks", "layernorm+x"})
        EXPECT_FALSE(parse_modules(text)) << text;
    for (int set = 0; set <= kAllModules; ++set)
        EXPECT_EQ(parse_modules(print_modules(static_cast<ModuleSet>(set))), static_cast<ModuleSet>(set));
}

TEST(RecomputedBlocks, AreAllByEveryRule) {
    const std::vector<TransformerLayerCost> all = layers_with(gpt(), BlockRule::Share, 1);
    for (const RecomputedBlocks& blocks : {RecomputedBlocks{BlockRule::Every, 1}, RecomputedBlocks{BlockRule::First, 4},
                                           RecomputedBlocks{BlockRule::Group, 1}}) {
        const std::vector<TransformerLayerCost> layers = layers_with(gpt(), blocks.rule, blocks.number);
        for (std::size_t layer = 0; layer < all.size(); ++layer) {
            EXPECT_EQ(layers[layer].backward_input, all[layer].backward_input);
            EXPECT_EQ(layers[layer].saved, all[layer].saved);
            EXPECT_EQ(layers[layer].scratch, all[layer].scratch);
            EXPECT_EQ(layers[layer].saves_output, all[layer].saves_output);
        }
    }
}

// Both stages count their own blocks.
TEST(RecomputedBlocks, AreChosenByTheirPlaceInTheStage) {
    const auto recomputed = [](BlockRule rule, double number) {
        std::string text;
        for (const TransformerLayerCost& layer : layers_with(gpt(), rule, number))
            text += layer.parts.again > 0 ? (layer.saved > 0 ? '?' : 'x') : '.';
        return text;
    };
    EXPECT_EQ(recomputed(BlockRule::First, 1), ".x...x....");
    EXPECT_EQ(recomputed(BlockRule::First, 3), ".xxx.xxx..");
    EXPECT_EQ(recomputed(BlockRule::Every, 2), "..x.x.x.x.");
    EXPECT_EQ(recomputed(BlockRule::Every, 3), "...x...x..");
    EXPECT_EQ(recomputed(BlockRule::Group, 3), ".xxxxxxxx.");
    EXPECT_EQ(layers_with(gpt(), BlockRule::First, 1, "mlp")[2].parts.again, 0);
    EXPECT_GT(layers_with(gpt(), BlockRule::First, 1, "mlp")[1].parts.again, 0);
}

// The parts of an embedding that two devices divide come before the blocks.
TEST(RecomputedBlocks, AreCountedAfterAllPartsOfTheEmbedding) {
    TransformerJob job = gpt();
    job.parts = 2;
    job.stage_of = {0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1};
    std::string text;
    for (const TransformerLayerCost& layer : layers_with(job, BlockRule::First, 1))
        text += layer.parts.again > 0 ? 'x' : '.';
    EXPECT_EQ(text, "..x...x......");
    text.clear();
    for (const TransformerLayerCost& layer : layers_with(job, BlockRule::Group, 2))
        text += layer.saves_output ? '.' : 'x';
    EXPECT_EQ(text, "..x.x.x.x....");
}

// Megatron-LM recomputes a module of a further token in a group of its own, and not with its method `block`.
TEST(RecomputedBlocks, HaveNoModulesOfFurtherTokens) {
    TransformerJob job = gpt();
    job.model.mtp = 1;
    const auto again = [&](BlockRule rule, double number) { return layers_with(job, rule, number)[9].parts.again; };
    const double all = again(BlockRule::Share, 1);
    EXPECT_GT(all, layers_with(job, BlockRule::Share, 1)[8].parts.again);
    EXPECT_NEAR(again(BlockRule::Share, 0.5), all / 2, 1e-12);
    EXPECT_EQ(again(BlockRule::First, 4), 0);
    EXPECT_EQ(again(BlockRule::Every, 2), 0);
    for (const double number : {1, 3}) {
        EXPECT_EQ(again(BlockRule::Group, number), all);
        const std::vector<TransformerLayerCost> layers = layers_with(job, BlockRule::Group, number);
        EXPECT_TRUE(layers[9].saves_output && layers[8].saves_output);
    }
    // Its three norms and its product from twice the hidden size are of no module.
    EXPECT_DOUBLE_EQ(freed(job, "layernorm", 8), 4 * 1024);
    EXPECT_EQ(repeated(job, "layernorm", 8), repeated(job, "layernorm", 0));
}

// Groups of three blocks, and of one that is left. Section 4.1 counts 32 h + 5 a s bytes per token for a block besides
// its input of 2 h.
TEST(RecomputedBlocks, OfAGroupAreLiveTogether) {
    const std::vector<TransformerLayerCost> layers = layers_with(gpt(), BlockRule::Group, 3);
    const double h = 1024, a = 16, s = 2048, kept = s * (32 * h + 5 * a * s), input = s * 2 * h;
    for (const int first : {1, 5}) {
        for (int block = first; block < first + 3; ++block) {
            EXPECT_DOUBLE_EQ(layers[block].scratch, 3 * kept + 3 * input) << "two inputs, and a gradient";
            EXPECT_EQ(layers[block].saves_output, block == first + 2);
            EXPECT_EQ(layers[block].saved, 0);
        }
        EXPECT_DOUBLE_EQ(layers[first + 3].scratch, kept);
        EXPECT_TRUE(layers[first + 3].saves_output);
    }
    const std::vector<TransformerLayerCost> all = layers_with(gpt(), BlockRule::Share, 1);
    for (std::size_t layer = 0; layer < all.size(); ++layer)
        EXPECT_EQ(layers[layer].backward_input, all[layer].backward_input);
}

// Without stages, the mean of a block counts.
TEST(RecomputedBlocks, OfUnknownStagesAreTheMean) {
    TransformerJob job = gpt();
    job.stage_of.clear();
    const double none = layers_with(job, BlockRule::Share, 1, "none")[1].backward_input;
    const double all = layers_with(job, BlockRule::Share, 1)[1].backward_input;
    EXPECT_DOUBLE_EQ(layers_with(job, BlockRule::Every, 4)[1].backward_input, none + (all - none) / 4);
    EXPECT_EQ(layers_with(job, BlockRule::First, 2)[8].backward_input, all);
}

}  // namespace pw
