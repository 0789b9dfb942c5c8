// Families beyond llama's layers: their config.json as published, against published numbers of parameters.
#include "workloads/models/transformer.h"

#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pw {
namespace {

Transformer model_of(const std::string& text) {
    const TemporaryFolder folder;
    return read_transformer_config(folder.write("config.json", text));
}

// Returns a letter for each layer: w for a window, f for full attention, M for Mamba-2, and then e for experts, d for
// an MLP.
std::string letters_of(const Transformer& model) {
    std::string letters;
    for (int layer = 0; layer < model.layers; ++layer) {
        const LayerForm form = model.form(layer);
        letters += form.mixer == Mixer::None     ? ""
                   : form.mixer == Mixer::Window ? "w"
                   : form.mixer == Mixer::Mamba  ? "M"
                                                 : "f";
        letters += form.feed == Feed::None ? "" : form.feed == Feed::Experts ? "e" : "d";
    }
    return letters;
}

struct GptNeoX {
    int layers, hidden, heads, vocabulary;
    std::int64_t total;
};
// Totals of the Pythia suite (arXiv 2304.01373, EleutherAI/pythia README) and of GPT-NeoX-20B's weights.
TEST(TransformerFamilies, OfNeoXHaveThePublishedParameters) {
    for (const GptNeoX& row : {GptNeoX{6, 512, 8, 50'304, 70'426'624},
                               {12, 768, 12, 50'304, 162'322'944},
                               {24, 2048, 16, 50'304, 1'414'647'808},
                               {32, 2560, 32, 50'304, 2'775'208'960},
                               {32, 4096, 32, 50'432, 6'857'302'016},
                               {36, 5120, 40, 50'688, 11'846'072'320},
                               {44, 6144, 64, 50'432, 20'554'567'680}}) {
        const Transformer model = model_of(fmt::format(
            R"({{"model_type": "gpt_neox", "hidden_act": "gelu", "hidden_size": {}, "intermediate_size": {},
 "max_position_embeddings": 2048, "num_attention_heads": {}, "num_hidden_layers": {}, "rotary_pct": 0.25,
 "tie_word_embeddings": false, "use_parallel_residual": true, "vocab_size": {}}})",
            row.hidden, 4 * row.hidden, row.heads, row.layers, row.vocabulary));
        EXPECT_EQ(parameters_of(model).total, row.total);
        EXPECT_TRUE(model.parallel);
        EXPECT_TRUE(model.not_counted.empty());
    }
}

struct Gemma {
    const char* keys;
    double embedding, others;  // millions
    const char* first_layers;
};
// Parameters of the embedding and all remaining ones: Gemma 2 (arXiv 2408.00118, table 2) and Gemma 3 (arXiv
// 2503.19786, table 1, which counts more words).
TEST(TransformerFamilies, OfGemmaHaveThePublishedParameters) {
    for (const Gemma& row : {Gemma{R"("model_type": "gemma2", "hidden_size": 2304, "num_hidden_layers": 26,
 "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 9216, "vocab_size": 256000,
 "sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0)",
                                   590, 2024, "wdfdwdfdwdfd"},
                             {R"("model_type": "gemma2", "hidden_size": 3584, "num_hidden_layers": 42,
 "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "intermediate_size": 14336,
 "vocab_size": 256000, "sliding_window": 4096, "final_logit_softcapping": 30.0)",
                              918, 8324, "wdfdwdfdwdfd"},
                             {R"("model_type": "gemma3_text", "hidden_size": 1152, "num_hidden_layers": 26,
 "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 6912, "vocab_size": 262144,
 "sliding_window": 512, "sliding_window_pattern": 6)",
                              302, 698, "wdwdwdwdwdfd"},
                             {R"("model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
 "hidden_size": 3840, "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 8,
 "intermediate_size": 15360, "sliding_window": 1024}, "vision_config": {"hidden_size": 1152})",
                              1012, 10'759, "wdwdwdwdwdfd"}}) {
        const Transformer model =
            model_of(fmt::format("{{{}, \"hidden_activation\": \"gelu_pytorch_tanh\"}}", row.keys));
        const TransformerParameters parameters = parameters_of(model);
        EXPECT_NEAR(static_cast<double>(parameters.embedding) / 1e6, row.embedding, 0.01 * row.embedding);
        EXPECT_NEAR(static_cast<double>(parameters.total - parameters.embedding) / 1e6, row.others, 1);
        EXPECT_EQ(letters_of(model).substr(0, 12), row.first_layers);
        EXPECT_EQ(model.head_width, 256);
        EXPECT_TRUE(model.tied && model.gated && model.post_norms);
        EXPECT_EQ(model.caps_logits, std::string(row.keys).find("final_logit") != std::string::npos);
    }
    const Transformer first = model_of(R"({"model_type": "gemma", "hidden_size": 3072, "num_hidden_layers": 28,
 "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256, "intermediate_size": 24576,
 "vocab_size": 256000, "hidden_act": "gelu"})");
    EXPECT_EQ(parameters_of(first).total, 8'537'680'896);  // of the published weights
    EXPECT_FALSE(first.post_norms);
}

std::string nemotron_h(int hidden, const std::string& pattern, int layers, int ffn, int heads, int mamba_heads,
                       int state) {
    return fmt::format(R"({{"model_type": "nemotron_h", "hidden_size": {}, "hybrid_override_pattern": "{}",
 "num_hidden_layers": {}, "intermediate_size": {}, "num_attention_heads": {}, "num_key_value_heads": 8, "head_dim": 128,
 "mamba_num_heads": {}, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": {}, "conv_kernel": 4, "chunk_size": 128,
 "mlp_hidden_act": "relu2", "tie_word_embeddings": false, "vocab_size": 131072}})",
                       hidden, pattern, layers, ffn, heads, mamba_heads, state);
}

std::string times(int count, const std::string& text) {
    std::string all;
    for (int k = 0; k < count; ++k)
        all += text;
    return all;
}

// The 8B model has 24 layers of Mamba-2, 24 MLPs and 4 layers of attention, the 47B model 44, 49 and 5, the 56B model
// 54, 54 and 10 (arXiv 2504.03624, table 1 and section 3.2). By hand for 8B: a layer of Mamba-2 is a product from 4096
// to 2 x 8192 + 2 x 8 x 128 + 128 numbers, a convolution of 8192 + 2 x 8 x 128 channels with 4 weights and a bias, 3 x
// 128 numbers of heads, a norm of 8192, a product from 8192 to 4096 and a norm of 4096: 109,640,064.
TEST(TransformerFamilies, OfNemotronHHaveThePublishedParameters) {
    const std::string pattern_8b = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";
    const Transformer model = model_of(nemotron_h(4096, pattern_8b, 52, 21'504, 32, 128, 128));
    const TransformerParameters parameters = parameters_of(model);
    const std::int64_t mamba =
        4096 * (2 * 8192 + 2 * 8 * 128 + 128) + (8192 + 2 * 8 * 128) * 5 + 3 * 128 + 8192 + 8192 * 4096;
    EXPECT_EQ(parameters.mamba, mamba);
    EXPECT_EQ(mamba + 4096, 109'640'064);
    EXPECT_EQ(parameters.total, 8'100'852'736);
    EXPECT_EQ(letters_of(model).substr(0, 10), "MdMdMdMfdM");
    EXPECT_EQ(model.position, PositionKind::None);
    const Transformer of_56b = model_of(nemotron_h(8192, times(54, "M-") + times(10, "*"), 118, 32'768, 64, 256, 256));
    EXPECT_NEAR(static_cast<double>(parameters_of(of_56b).total), 56e9, 0.5e9);
    const Transformer of_47b = model_of(nemotron_h(8192, times(44, "M-") + times(5, "*-"), 98, 30'720, 64, 256, 256));
    EXPECT_NEAR(static_cast<double>(parameters_of(of_47b).total), 47e9, 0.5e9);
}

// state-spaces/mamba2-2.7b: 2,702,599,680 numbers in the published weights.
TEST(TransformerFamilies, OfMamba2HaveThePublishedParameters) {
    const Transformer model = model_of(R"({"model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64,
 "num_heads": 80, "head_dim": 64, "n_groups": 1, "state_size": 128, "conv_kernel": 4, "expand": 2, "chunk_size": 256,
 "time_step_rank": 160, "hidden_act": "silu", "tie_word_embeddings": true, "vocab_size": 50288})");
    EXPECT_EQ(parameters_of(model).total, 2'702'599'680);
    EXPECT_EQ(letters_of(model), std::string(64, 'M'));
    EXPECT_EQ(model.most_tensor_ranks(), 80);
}

// 9.78B (ibm-ai-platform/Bamba-9B): 29 layers of Mamba-2 and 3 of attention, each with an MLP.
TEST(TransformerFamilies, OfBambaHaveThePublishedParameters) {
    const Transformer model = model_of(R"({"model_type": "bamba", "hidden_size": 4096, "num_hidden_layers": 32,
 "attn_layer_indices": [9, 18, 27], "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
 "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_d_conv": 4,
 "mamba_chunk_size": 256, "hidden_act": "silu", "tie_word_embeddings": false, "vocab_size": 128256})");
    EXPECT_NEAR(static_cast<double>(parameters_of(model).total), 9.78e9, 0.005e9);
    EXPECT_EQ(letters_of(model).substr(14, 10), "MdMdfdMdMd");
}

// 31.6B parameters, 3.6B of them for a token (NVIDIA Nemotron 3 Nano): 23 layers of Mamba-2, 23 of experts, 6 of
// attention. The count of FLOPs is of training on 40960 tokens per second at 905 TFLOP/s: see
// test_transformer_costs.cpp.
TEST(TransformerFamilies, OfNemotron3HaveThePublishedParameters) {
    const Transformer& model = *find_transformer("nemotron-3-nano");
    EXPECT_NEAR(static_cast<double>(parameters_of(model).total), 31.6e9, 0.05e9);
    EXPECT_NEAR(static_cast<double>(parameters_of(model).active), 3.6e9, 0.05e9);
    EXPECT_EQ(letters_of(model), "MeMeMfeMeMeMfeMeMeMfeMeMeMfeMeMeMfeMeMeMeMfeMeMeMeMe");
    Transformer listed = model_of(R"({"model_type": "nemotron_h", "hidden_size": 64, "num_hidden_layers": 4,
 "layers_block_type": ["mamba", "mlp", "attention", "moe"], "intermediate_size": 32, "num_attention_heads": 4,
 "n_routed_experts": 4, "num_experts_per_tok": 2, "mamba_num_heads": 8, "mamba_head_dim": 4, "ssm_state_size": 16,
 "num_nextn_predict_layers": 2, "mtp_layers_block_type": ["attention", "moe"], "vocab_size": 100})");
    EXPECT_EQ(letters_of(listed), "Mdfe");
    EXPECT_EQ(listed.form_of_mtp(), (LayerForm{Mixer::Attention, Feed::Experts}));
    // transformers writes defaults of experts and modules that no layer has
    const std::string defaults = R"("n_routed_experts": 8, "num_experts_per_tok": 2, "num_nextn_predict_layers": 0,
 "mtp_layers_block_type": ["attention", "moe"], "model_type")";
    std::string unused = nemotron_h(4096, "M-M*", 4, 21'504, 32, 128, 128);
    unused.replace(unused.find(R"("model_type")"), 12, defaults);
    const Transformer plain = model_of(unused);
    EXPECT_FALSE(plain.experts || plain.mtp_form);
    EXPECT_EQ(plain.form_of_mtp(), (LayerForm{Mixer::Attention, Feed::None}));
}

// The published weights of Nemotron 3 Super have 123,611,033,088 numbers, among them a correction of the router's
// choice for each expert in 41 layers, which is not counted (NVIDIA-NeMo/Megatron-Bridge@067f987df,
// examples/model_verification_cards/nemotron-3-super-120b-a12b/card.yaml). A module of a further token is an attention
// layer, a layer of experts, three norms and a product from 8192 to 4096.
TEST(TransformerFamilies, OfNemotron3SuperHaveThePublishedParameters) {
    Transformer model = *find_transformer("nemotron-3-super");
    EXPECT_TRUE(model.not_counted.empty());
    EXPECT_EQ(model.form_of_mtp(), (LayerForm{Mixer::Attention, Feed::Experts}));
    const std::int64_t hidden = 4096, inner = 128 * 64, groups = 8 * 128;
    const std::int64_t mamba =
        hidden * (2 * inner + 2 * groups + 128) + (inner + 2 * groups) * 5 + 3 * 128 + inner + inner * hidden + hidden;
    const std::int64_t attention = 2 * hidden * 32 * 128 + 2 * hidden * 2 * 128 + hidden;
    const std::int64_t expert = 2 * 1024 * 2688, router = 512 * hidden, shared = 2 * hidden * 5376,
                       latent = 2 * hidden * 1024;
    const std::int64_t layer = router + shared + latent + 512 * expert + hidden;
    const std::int64_t tables = 2 * hidden * 131'072 + hidden;
    const std::int64_t blocks = 40 * mamba + 8 * attention + 40 * layer;
    const std::int64_t module = attention + layer + 3 * hidden + 2 * hidden * hidden;
    EXPECT_EQ(blocks + tables + module + 41 * 512, 123'611'033'088);
    EXPECT_EQ(parameters_of(model).total, blocks + tables);
    EXPECT_EQ(parameters_of(model).shared, router + shared + latent);
    EXPECT_EQ(parameters_of(model).routed, 512 * expert);
    EXPECT_EQ(parameters_of(model).active, blocks + tables - 40 * (512 - 22) * expert);
    // 120.6B, of which a token uses 12.7B (arXiv 2604.12374, section 2; digits after that are cut)
    EXPECT_EQ(parameters_of(model).total / 100'000'000, 1206);
    EXPECT_EQ(parameters_of(model).active / 100'000'000, 127);
    model.mtp = 1;
    EXPECT_EQ(parameters_of(model).mtp, module);
    EXPECT_EQ(parameters_of(model).total, blocks + tables + module);
}

// 550B parameters, and 55B for a token without the table of the embedding (NVIDIA Nemotron 3 Ultra 550B-A55B).
TEST(TransformerFamilies, OfNemotron3UltraHaveThePublishedParameters) {
    const TransformerParameters parameters = parameters_of(*find_transformer("nemotron-3-ultra"));
    EXPECT_NEAR(static_cast<double>(parameters.total), 550e9, 1e9);
    EXPECT_NEAR(static_cast<double>(parameters.active - parameters.embedding), 55e9, 0.1e9);
}

// DeepSeek-V3's module has 11.5B parameters of its own (deepseek-ai/DeepSeek-V3, README_WEIGHTS.md), 14B with embedding
// and head. By hand: a layer with experts, three norms, and a product from 14336 to 7168.
TEST(TransformerFamilies, CountTheModulesOfFurtherTokens) {
    Transformer model = *find_transformer("deepseek-v3");
    const std::int64_t main = parameters_of(model).total;
    EXPECT_EQ(parameters_of(model).mtp, 0);
    model.mtp = 1;
    const TransformerParameters parameters = parameters_of(model);
    EXPECT_EQ(parameters.mtp,
              parameters.attention + parameters.shared + parameters.routed + 3 * 7168 + 2 * 7168 * 7168);
    EXPECT_NEAR(static_cast<double>(parameters.mtp), 11.5e9, 0.15e9);
    EXPECT_NEAR(static_cast<double>(parameters.mtp + 2 * 7168 * 129'280), 13.5e9, 0.15e9);
    EXPECT_EQ(parameters.total, main + parameters.mtp);
    model.mtp = 2;
    EXPECT_EQ(parameters_of(model).total, main + 2 * parameters.mtp);
}

std::string llama_with(const std::string& more) {
    return fmt::format(R"({{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 6,
 "vocab_size": 100, "intermediate_size": 172, {}}})",
                       more);
}

TEST(TransformerFamilies, SayWhatIsNotCounted) {
    const auto parts = [](const std::string& more) { return model_of(llama_with(more)).not_counted; };
    EXPECT_TRUE(parts(R"("rope_scaling": null, "index_topk": 0)").empty());
    EXPECT_EQ(parts(R"("vision_config": {"hidden_size": 8}, "index_topk": 2048)"),
              (std::vector<std::string>{
                  "the part for images (vision_config)",
                  "the choice of keys that attention reads (attention is counted in full) (index_topk)"}));
    EXPECT_EQ(model_of(R"({"model_type": "newcomer", "hidden_size": 64, "num_attention_heads": 4,
 "num_hidden_layers": 6, "vocab_size": 100, "intermediate_size": 172})")
                  .not_counted,
              std::vector<std::string>{"whatever layers of 'newcomer' have other than llama's (model_type)"});
}

TEST(TransformerFamilies, WithMistakesSayWhere) {
    const auto refuse = [](const std::string& text, const std::vector<std::string>& parts) {
        expect_says(refusal([&] { model_of(text); }), parts);
    };
    refuse(nemotron_h(4096, "M-X", 3, 64, 32, 128, 128),
           {"'hybrid_override_pattern' has the letter 'X'", "write M for"});
    refuse(nemotron_h(4096, "M-", 3, 64, 32, 128, 128), {"has 2 values, but there are 3 layers"});
    refuse(nemotron_h(4096, "MEE", 3, 64, 32, 128, 128),
           {"layers have experts, but the model has no n_routed_experts"});
    refuse(nemotron_h(4096, "M--", 3, 64, 32, 12, 128), {"12 heads of Mamba do not divide into 8 groups"});
    refuse(llama_with(R"("mamba_num_heads": 8, "mamba_head_dim": 4, "ssm_state_size": 16)"),
           {"the model has heads of Mamba-2, but no layer with Mamba-2"});
    refuse(llama_with(R"("mamba_dt_rank": 8)"), {"'mamba_dt_rank' is of a model with Mamba-1"});
    refuse(llama_with(R"("layer_types": ["mamba", "mamba", "mamba", "mamba", "mamba", "attention"])"),
           {"layers have Mamba-2, but the model has no mamba_num_heads"});
    refuse(llama_with(R"("num_nextn_predict_layers": 17)"), {"'num_nextn_predict_layers' is 17", "at most 16"});
    refuse(nemotron_h(4096, "M--\", \"num_nextn_predict_layers\": 1, \"mtp_hybrid_override_pattern\": \"E*", 3, 64, 32,
                      128, 128),
           {"'mtp_hybrid_override_pattern' is not a mixer and an MLP"});
}

}  // namespace
}  // namespace pw
