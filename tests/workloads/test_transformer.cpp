// Parameters of transformers against published totals and against sums that others made from the same sources.
#include "workloads/models/transformer.h"

#include "tests/support/public_data.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pw {
namespace {

const Transformer& preset(std::string_view name) {
    const Transformer* model = find_transformer(name);
    if (model == nullptr)
        throw std::out_of_range(std::string(name));
    return *model;
}

// The totals of the published weights. Not counted here: DeepSeek's additional layer that predicts a
// second token and the 256 corrections of a router, which are no weights; the 64 sinks of attention in each layer of
// GPT-OSS; the norm of BLOOM after its embedding, 2 x 14336.
TEST(Transformers, HaveThePublishedNumberOfParameters) {
    struct Published {
        const char* name;
        std::int64_t total;
    };
    for (const Published& published : {Published{"gpt2", 124'439'808},
                                       {"gpt2-xl", 1'557'611'200},
                                       {"llama-2-7b", 6'738'415'616},
                                       {"llama-2-70b", 68'976'648'192},
                                       {"llama-3-8b", 8'030'261'248},
                                       {"llama-3-70b", 70'553'706'496},
                                       {"llama-3.1-405b", 405'853'388'800},
                                       {"llama-3.2-1b", 1'235'814'400},
                                       {"qwen2.5-7b", 7'615'616'512},
                                       {"qwen3-8b", 8'190'735'360},
                                       {"mixtral-8x7b", 46'702'792'704},
                                       {"qwen3-30b-a3b", 30'532'122'624},
                                       {"deepseek-v2-lite", 15'706'484'224},
                                       {"deepseek-v3", 671'026'404'352},
                                       {"gpt-oss-20b", 20'914'757'184 - 24 * 64},
                                       {"gpt-oss-120b", 116'829'156'672 - 36 * 64},
                                       {"bloom-176b", 176'247'271'424 - 2 * 14336}})
        EXPECT_EQ(parameters_of(preset(published.name)).total, published.total) << published.name;
    EXPECT_EQ(parameters_of(preset("mixtral-8x7b")).active, 12'879'925'248);
}

TEST(Transformers, HaveTheParametersOfTheirSources) {
    PIPEWRIGHT_NEED_DATA(path, "clusters/models.yaml");
    // The biases of routers, which the sums there leave out.
    const std::map<std::string, std::int64_t> more = {{"gpt-oss-20b", 24 * 32}, {"gpt-oss-120b", 36 * 128}};
    int compared = 0;
    for (const auto& entry : YAML::LoadFile(path)["models"]) {
        const auto name = entry.first.as<std::string>();
        const YAML::Node facts = entry.second;
        const TransformerParameters parameters = parameters_of(preset(name));
        const std::int64_t biases = more.contains(name) ? more.at(name) : 0;
        const auto total = facts["parameters"].as<std::int64_t>();
        EXPECT_EQ(parameters.total, total + biases) << name;
        EXPECT_EQ(parameters.active, facts["parameters_active"].as<std::int64_t>(total) + biases) << name;
        ++compared;
    }
    EXPECT_EQ(compared, 60);
}

TEST(Transformers, HaveTheShapesOfTheirSources) {
    PIPEWRIGHT_NEED_DATA(path, "clusters/models.yaml");
    for (const auto& entry : YAML::LoadFile(path)["models"]) {
        const auto name = entry.first.as<std::string>();
        const YAML::Node config = entry.second["config"];
        const Transformer& model = preset(name);
        const auto expect = [&](int value, const char* key) { EXPECT_EQ(value, config[key].as<int>()) << name << key; };
        expect(model.hidden, "hidden_size");
        expect(model.layers, "num_hidden_layers");
        expect(model.heads, "num_attention_heads");
        expect(model.key_value_heads, "num_key_value_heads");
        expect(model.ffn, "intermediate_size");
        expect(model.vocabulary, "vocab_size");
        expect(model.positions, "max_position_embeddings");
        EXPECT_EQ(model.window, config["sliding_window"].as<int>(0)) << name;
        EXPECT_EQ(model.tied, config["tie_word_embeddings"].as<bool>()) << name;
        EXPECT_EQ(model.bias, config["bias"].as<bool>()) << name;
        EXPECT_EQ(model.attention_bias, config["attention_bias"].IsDefined()) << name;
        EXPECT_EQ(model.normed_heads, config["qk_norm"].as<bool>(false)) << name;
        EXPECT_EQ(model.norm == NormKind::RmsNorm, config["norm"].as<std::string>() == "rmsnorm") << name;
        EXPECT_EQ(model.gated, config["hidden_act"].as<std::string>() == "silu gated") << name;
        const auto positions = config["positions"].as<std::string>();
        EXPECT_EQ(model.position == PositionKind::Learned, positions == "learned") << name;
        EXPECT_EQ(model.position == PositionKind::Alibi, positions == "alibi") << name;
        EXPECT_EQ(model.experts.has_value(), config["num_experts_per_tok"].IsDefined()) << name;
    }
}

// Of 4 words and 3 positions, 2 layers, hidden 4, 2 heads of 2, an MLP of 8.
Transformer small_transformer() {
    return {.name = "small",
            .hidden = 4,
            .layers = 2,
            .heads = 2,
            .key_value_heads = 2,
            .head_width = 2,
            .ffn = 8,
            .vocabulary = 4,
            .positions = 3,
            .bias = true,
            .tied = true};
}

TEST(TransformerParameters, AreThoseOfEveryPart) {
    Transformer model = small_transformer();
    const TransformerParameters gpt = parameters_of(model);
    EXPECT_EQ(gpt.embedding, 4 * 4 + 3 * 4);
    EXPECT_EQ(gpt.head, 2 * 4);
    EXPECT_EQ(gpt.attention, 4 * (4 * 4 + 4) + 2 * 2 * 4);
    EXPECT_EQ(gpt.dense, 4 * 8 + 8 + 8 * 4 + 4);
    EXPECT_EQ(gpt.total, gpt.embedding + gpt.head + 2 * (gpt.attention + gpt.dense));
    EXPECT_EQ(gpt.active, gpt.total);

    model.norm = NormKind::RmsNorm;
    model.position = PositionKind::Rotary;
    model.gated = true;
    model.bias = model.tied = false;
    model.attention_bias = model.normed_heads = true;
    model.key_value_heads = 1;
    const TransformerParameters llama = parameters_of(model);
    EXPECT_EQ(llama.embedding, 4 * 4);
    EXPECT_EQ(llama.head, 4 + 4 * 4);
    EXPECT_EQ(llama.attention, (4 * 4 + 4) + 2 * (4 * 2 + 2) + 4 * 4 + 2 * 2 + 2 * 4);
    EXPECT_EQ(llama.dense, 3 * 4 * 8);
}

TEST(TransformerParameters, CountExpertsOfTheLayersThatHaveThem) {
    Transformer model = small_transformer();
    model.layers = 6;
    model.bias = false;
    model.experts = Experts{.count = 8, .active = 2, .width = 3, .shared_width = 5};
    model.forms = {{Mixer::Attention, Feed::Mlp}, {Mixer::Attention, Feed::Experts}};
    const TransformerParameters parameters = parameters_of(model);
    EXPECT_EQ(parameters.shared, 4 * 8 + 2 * 4 * 5);
    EXPECT_EQ(parameters.routed, 8 * 2 * 4 * 3);
    std::string with_experts;
    for (int layer = 0; layer < model.layers; ++layer)
        with_experts += model.has_experts(layer) ? 'e' : 'd';
    EXPECT_EQ(with_experts, "dedede");
    EXPECT_EQ(parameters.total, parameters.embedding + parameters.head + 6 * parameters.attention +
                                    3 * parameters.dense + 3 * (parameters.shared + parameters.routed));
    EXPECT_EQ(parameters.active, parameters.total - 3 * parameters.routed * 6 / 8);
}

TEST(TransformerParameters, OfCompressedAttentionCountBothRanksAndTheirNorms) {
    Transformer model = small_transformer();
    model.norm = NormKind::RmsNorm;
    model.bias = false;
    model.latent =
        LatentAttention{.query_rank = 3, .key_value_rank = 5, .plain_width = 2, .rotary_width = 1, .value_width = 7};
    const std::int64_t keys_and_values = 4 * (5 + 1) + 5 + 5 * 2 * (2 + 7), output = 2 * 7 * 4, norms = 2 * 4;
    EXPECT_EQ(parameters_of(model).attention, 4 * 3 + 3 + 3 * 2 * 3 + keys_and_values + output + norms);
    model.latent->query_rank = 0;
    EXPECT_EQ(parameters_of(model).attention, 4 * 2 * 3 + keys_and_values + output + norms);
}

TEST(Transformers, OfGptOssHaveAWindowInEverySecondLayer) {
    const Transformer& model = preset("gpt-oss-20b");
    EXPECT_EQ(model.window, 128);
    EXPECT_TRUE(model.has_window(0));
    EXPECT_FALSE(model.has_window(1));
    EXPECT_TRUE(model.has_window(2));
    EXPECT_FALSE(preset("llama-3-8b").has_window(0));
}

}  // namespace
}  // namespace pw
