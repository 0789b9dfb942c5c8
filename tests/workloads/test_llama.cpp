// A decoder of the LLaMA family: its layers and parameters against published ones, and its analytic costs.
#include "workloads/models/llama.h"

#include "tests/support/layer_of.h"
#include "tests/support/refusal.h"
#include "workloads/costs/costs.h"
#include "workloads/models/initial_parameters.h"
#include "workloads/models/parameters.h"
#include "workloads/stages/ties.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace pw {
namespace {

int layers_in(const Model& model) { return static_cast<int>(num_vertices(model.layers)); }

std::int64_t trained_in(const Model& model) {
    std::int64_t count = 0;
    for (int layer = 0; layer < layers_in(model); ++layer)
        count += model.layers[layer].parameters;
    return count;
}

TEST(Llama, HasThePublishedParameters) {
    const LlamaShape tiny_llama{.sequence_length = 2048,
                                .vocabulary = 32'000,
                                .width = 2048,
                                .blocks = 22,
                                .heads = 32,
                                .key_value_heads = 4,
                                .inner = 5632};
    EXPECT_EQ(trained_in(build_llama(tiny_llama)), 1'100'048'384);
    const LlamaShape llama_2_7b{
        .sequence_length = 4096, .vocabulary = 32'000, .width = 4096, .blocks = 32, .heads = 32};
    EXPECT_EQ(trained_in(build_llama(llama_2_7b)), 6'738'415'616);
    const LlamaShape llama_3_8b{.sequence_length = 8192,
                                .vocabulary = 128'256,
                                .width = 4096,
                                .blocks = 32,
                                .heads = 32,
                                .key_value_heads = 8,
                                .inner = 14'336,
                                .rotary_base = 500'000};
    EXPECT_EQ(trained_in(build_llama(llama_3_8b)), 8'030'261'248);
}

// The widths of LLaMA's four models, and of its rule with a smaller multiple.
TEST(Llama, HasThePublishedInnerWidths) {
    EXPECT_EQ(usual_inner_width(4096), 11'008);
    EXPECT_EQ(usual_inner_width(5120), 13'824);
    EXPECT_EQ(usual_inner_width(6656), 17'920);
    EXPECT_EQ(usual_inner_width(8192), 22'016);
    EXPECT_EQ(usual_inner_width(128), 344);
}

TEST(Llama, HasThePublishedNames) {
    const Model model = build_llama({.sequence_length = 5,
                                     .vocabulary = 7,
                                     .width = 8,
                                     .blocks = 2,
                                     .heads = 4,
                                     .key_value_heads = 2,
                                     .inner = 12});
    std::map<std::string, std::vector<int>> shapes;
    for (int layer = 0; layer < layers_in(model); ++layer)
        for (const ParameterShape& shape : parameters_of(model.layers[layer]))
            shapes[shape.name] = shape.shape;
    std::map<std::string, std::vector<int>> expected{
        {"model.embed_tokens.weight", {7, 8}}, {"model.norm.weight", {8}}, {"lm_head.weight", {7, 8}}};
    for (const std::string block : {"model.layers.0.", "model.layers.1."})
        for (const auto& [name, shape] :
             std::vector<std::pair<std::string, std::vector<int>>>{{"input_layernorm", {8}},
                                                                   {"self_attn.q_proj", {8, 8}},
                                                                   {"self_attn.k_proj", {4, 8}},
                                                                   {"self_attn.v_proj", {4, 8}},
                                                                   {"self_attn.o_proj", {8, 8}},
                                                                   {"post_attention_layernorm", {8}},
                                                                   {"mlp.gate_proj", {12, 8}},
                                                                   {"mlp.up_proj", {12, 8}},
                                                                   {"mlp.down_proj", {8, 12}}})
            expected[block + name + ".weight"] = shape;
    EXPECT_EQ(shapes, expected);
    EXPECT_TRUE(ties_of(model.layers).empty());
    EXPECT_EQ(labels_per_sample(model), 5);
}

TEST(Llama, ReadsWhatItsBlocksRead) {
    const Model model = build_llama({.width = 16, .blocks = 2, .heads = 4, .key_value_heads = 2});
    const auto names = [&](const std::vector<int>& layers) {
        std::string text;
        for (const int layer : layers)
            text += model.layers[layer].name.substr(std::string("model.layers.1.").size()) + " ";
        return text;
    };
    const auto number = [&](const std::string& name) { return find_layer(model.layers, "model.layers.1." + name); };
    EXPECT_EQ(names(readers_of_layer(model.layers, number("input_layernorm"))),
              "self_attn.q_proj self_attn.k_proj self_attn.v_proj ");
    EXPECT_EQ(names(inputs_of_layer(model.layers, number("self_attn.core"))),
              "self_attn.q_rotary self_attn.k_rotary self_attn.v_proj ");
    EXPECT_EQ(names(inputs_of_layer(model.layers, number("mlp.act"))), "mlp.gate_proj mlp.up_proj ");
    EXPECT_EQ(names(readers_of_layer(model.layers, number("add_1"))), "post_attention_layernorm add_2 ");
}

TEST(Llama, RefusesImpossibleShapes) {
    expect_says(refusal([] { build_llama({.width = 12, .heads = 4}); }), {"12", "4 heads", "even width"});
    expect_says(refusal([] { build_llama({.width = 16, .heads = 4, .key_value_heads = 3}); }), {"4 heads", "3 heads"});
    expect_says(refusal([] { build_llama({.blocks = 0}); }), {"0 blocks"});
    expect_says(refusal([] { build_llama({.rotary_base = 1}); }), {"rotary base of 1"});
}

double root_mean_square(const std::vector<float>& values) {
    double squares = 0;
    for (const float value : values)
        squares += double{value} * value;
    return std::sqrt(squares / static_cast<double>(values.size()));
}

TEST(Llama, StartsAsGpt2Does) {
    const Model model = build_llama({.vocabulary = 100, .width = 64, .blocks = 8, .heads = 2});
    const auto first = [&](const std::string& name) {
        return initial_parameters(model.layers, find_layer(model.layers, name), 1).at(0);
    };
    for (const char* name :
         {"model.embed_tokens", "lm_head", "model.layers.3.self_attn.v_proj", "model.layers.7.mlp.gate_proj"})
        EXPECT_NEAR(root_mean_square(first(name)), 0.02, 0.001) << name;
    for (const char* name : {"model.layers.3.self_attn.o_proj", "model.layers.7.mlp.down_proj"})
        EXPECT_NEAR(root_mean_square(first(name)), 0.02 / 4, 0.0003) << name;  // 16 residual sums
    EXPECT_EQ(first("model.norm"), std::vector<float>(64, 1));
}

// 4 heads of 8, which share 2 heads of keys and values; 16 rows. Row t reads t + 1 keys, so that a head's scores are 16
// * 17 / 2 products of 8 values, and its outputs as many.
const Model& costed() {
    static const Model model = build_llama({.sequence_length = 16,
                                            .vocabulary = 50,
                                            .width = 32,
                                            .blocks = 1,
                                            .heads = 4,
                                            .key_value_heads = 2,
                                            .inner = 40});
    return model;
}

TEST(LlamaCosts, AreTheProductsOfAttention) {
    const Layer& core = layer_of(costed(), "model.layers.0.self_attn.core");
    const double products = 2.0 * 4 * (16 * 17 / 2) * 8;
    EXPECT_EQ(core.flops_forward, 2 * products);
    EXPECT_EQ(core.flops_input, 2 * 2 * products);
    EXPECT_EQ(core.flops_weight, 0);
    EXPECT_EQ(layer_of(costed(), "model.layers.0.self_attn.k_proj").flops_forward, 2.0 * 16 * 32 * 16);
    EXPECT_EQ(layer_of(costed(), "model.layers.0.mlp.down_proj").flops_weight, 2.0 * 16 * 40 * 32);
    for (const char* name : {"self_attn.q_rotary", "mlp.act", "input_layernorm", "add_1"})
        EXPECT_EQ(layer_of(costed(), std::string("model.layers.0.") + name).flops_forward, 0) << name;
}

TEST(LlamaCosts, SaveProbabilitiesAndRoots) {
    const auto saved = [](const char* name, Precision precision = Precision::Fp32) {
        return analytic_bytes(layer_of(costed(), std::string("model.layers.0.") + name), 3, precision)
            .saved_until_input;
    };
    EXPECT_EQ(saved("self_attn.core"), 3 * 4 * 16 * 16 * 4);
    EXPECT_EQ(saved("self_attn.core", Precision::Bf16), 3 * 4 * 16 * 16 * 2);
    EXPECT_EQ(saved("input_layernorm"), 3 * 16 * 4);
    EXPECT_EQ(saved("self_attn.q_rotary"), 0);
    EXPECT_EQ(saved("mlp.act"), 0);
}

TEST(LlamaCosts, AreBytesOverBandwidthWhenComputeIsFast) {
    const DeviceRates rates{.flops = 1e30, .memory_bandwidth = 1e9};
    const auto times = [&](const char* name) {
        return analytic_times(layer_of(costed(), std::string("model.layers.0.") + name), 1, rates);
    };
    constexpr Ns kQueries = 4 * 16 * 32, kKeys = kQueries / 2, kScores = 4 * 4 * 16 * 16, kInner = 4 * 16 * 40;
    const LayerTimes core = times("self_attn.core");
    EXPECT_EQ(core.forward.median, kQueries + 2 * kKeys + kScores + kQueries);
    EXPECT_EQ(core.backward_input.median, kQueries + kScores + 2 * (kQueries + 2 * kKeys));
    const LayerTimes act = times("mlp.act");
    EXPECT_EQ(act.forward.median, 3 * kInner);
    EXPECT_EQ(act.backward_input.median, 5 * kInner);
    const LayerTimes rotary = times("self_attn.k_rotary");
    EXPECT_EQ(rotary.forward.median, 2 * kKeys);
    EXPECT_EQ(rotary.backward_input.median, 2 * kKeys);
}

}  // namespace
}  // namespace pw
