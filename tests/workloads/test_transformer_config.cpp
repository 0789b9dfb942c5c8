// Reading config.json: the files of each family, as its publishers write them, and mistakes.
#include "workloads/models/transformer.h"

#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace pw {
namespace {

Transformer model_in(const std::string& text) {
    const TemporaryFolder folder;
    return read_transformer_config(folder.write("config.json", text));
}

// Returns the text of a small model of llama's layers, with more keys or with others in their place.
std::string llama_json(std::string_view more = "",
                       std::string_view shape = R"("hidden_size": 64, "num_attention_heads": 4)") {
    return fmt::format(R"({{"model_type": "llama", "num_hidden_layers": 6, "vocab_size": 100,
 "intermediate_size": 172, "max_position_embeddings": 32,
 {}{}{}}})",
                       shape, more.empty() ? "" : ",\n ", more);
}

void expect_mistakes(const std::string& text, const std::vector<std::string>& parts) {
    expect_says(refusal([&] { model_in(text); }), parts);
}

struct FamilyFile {
    const char* preset;
    const char* text;
};
// Keys that do not matter for shapes are among them, as in real files.
const FamilyFile kFamilyFiles[] = {
    {"gpt2", R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
 "attn_pdrop": 0.1, "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "n_inner": null,
 "vocab_size": 50257, "task_specific_params": {"text-generation": {"do_sample": true}}})"},
    {"llama-2-7b", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
 "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096, "num_attention_heads": 32,
 "num_hidden_layers": 32, "num_key_value_heads": null, "pretraining_tp": 1, "rope_scaling": null,
 "tie_word_embeddings": false, "torch_dtype": "float16", "vocab_size": 32000})"},
    {"llama-3.2-1b", R"({"model_type": "llama", "attention_bias": false, "mlp_bias": false, "head_dim": 64,
 "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 131072,
 "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
 "rope_scaling": {"factor": 32.0, "rope_type": "llama3"}, "tie_word_embeddings": true, "vocab_size": 128256})"},
    {"mixtral-8x7b", R"({"model_type": "mixtral", "hidden_act": "silu", "hidden_size": 4096,
 "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2,
 "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "sliding_window": null,
 "vocab_size": 32000})"},
    {"qwen2.5-7b", R"({"model_type": "qwen2", "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944,
 "max_position_embeddings": 131072, "max_window_layers": 28, "num_attention_heads": 28, "num_hidden_layers": 28,
 "num_key_value_heads": 4, "sliding_window": 131072, "tie_word_embeddings": false, "use_sliding_window": false,
 "vocab_size": 152064})"},
    {"qwen3-8b", R"({"model_type": "qwen3", "attention_bias": false, "head_dim": 128, "hidden_size": 4096,
 "intermediate_size": 12288, "max_position_embeddings": 40960, "max_window_layers": 36, "num_attention_heads": 32,
 "num_hidden_layers": 36, "num_key_value_heads": 8, "sliding_window": null, "use_sliding_window": false,
 "vocab_size": 151936})"},
    {"qwen3-30b-a3b", R"({"model_type": "qwen3_moe", "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048,
 "intermediate_size": 6144, "max_position_embeddings": 40960, "mlp_only_layers": [], "moe_intermediate_size": 768,
 "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
 "num_key_value_heads": 4, "vocab_size": 151936})"},
    {"deepseek-v2-lite", R"({"model_type": "deepseek_v2", "first_k_dense_replace": 1, "hidden_size": 2048,
 "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 1408,
 "moe_layer_freq": 1, "n_routed_experts": 64, "n_shared_experts": 2, "num_attention_heads": 16,
 "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16, "q_lora_rank": null,
 "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 102400})"},
    {"deepseek-v3", R"({"model_type": "deepseek_v3", "attention_bias": false, "first_k_dense_replace": 3,
 "hidden_act": "silu", "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512, "head_dim": 64,
 "max_position_embeddings": 163840, "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8,
 "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 128, "num_experts_per_tok": 8,
 "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
 "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "quantization_config": {"weight_block_size": [128, 128]},
 "v_head_dim": 128, "vocab_size": 129280})"},
    {"kimi-k2", R"({"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2", "first_k_dense_replace": 1,
 "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 131072,
 "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_routed_experts": 384, "n_shared_experts": 1,
 "num_attention_heads": 64, "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 64,
 "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 163840},
 "vision_config": {"hidden_size": 1152}})"},
    {"gpt-oss-20b", R"({"model_type": "gpt_oss", "attention_bias": true, "experts_per_token": 4, "head_dim": 64,
 "hidden_act": "silu", "hidden_size": 2880, "intermediate_size": 2880, "layer_types": [
 "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention",
 "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention",
 "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention",
 "sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
 "max_position_embeddings": 131072, "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24,
 "num_key_value_heads": 8, "num_local_experts": 32, "sliding_window": 128, "vocab_size": 201088})"},
    {"grok-1", R"({"model_type": "grok-1", "hidden_act": "gelu", "hidden_size": 6144, "intermediate_size": 32768,
 "max_position_embeddings": 8192, "num_attention_heads": 48, "num_experts": 8, "num_experts_per_tok": 2,
 "num_hidden_layers": 64, "num_key_value_heads": 8, "vocab_size": 131072})"},
    {"nemotron-4-340b", R"({"model_type": "nemotron", "hidden_act": "relu2", "hidden_size": 18432,
 "intermediate_size": 73728, "max_position_embeddings": 4096, "num_attention_heads": 96, "num_hidden_layers": 96,
 "num_key_value_heads": 8, "partial_rotary_factor": 0.5, "vocab_size": 256000})"},
    {"mpt-7b", R"({"model_type": "mpt", "attn_config": {"alibi": true, "attn_type": "multihead_attention",
 "qk_ln": false}, "d_model": 4096, "expansion_ratio": 4, "learned_pos_emb": true, "max_seq_len": 2048, "n_heads": 32,
 "n_layers": 32, "no_bias": true, "norm_type": "low_precision_layernorm", "vocab_size": 50368})"},
    {"bloom-176b", R"({"model_type": "bloom", "hidden_size": 14336, "n_head": 112, "n_inner": null, "n_layer": 70,
 "seq_length": 2048, "skip_bias_add": true, "vocab_size": 250880})"},
};

TEST(TransformerConfig, OfEachFamilyIsThePreset) {
    for (const FamilyFile& file : kFamilyFiles) {
        Transformer model = model_in(file.text);
        const Transformer* preset = find_transformer(file.preset);
        ASSERT_NE(preset, nullptr) << file.preset;
        model.name = preset->name;
        model.not_counted.clear();
        model.mtp = 0;  // of presets the config says it
        EXPECT_EQ(parameters_of(model).total, parameters_of(*preset).total) << file.preset;
        EXPECT_TRUE(model == *preset) << file.preset;
    }
}

TEST(TransformerConfig, OfAnUnknownFamilyWithLayersOfLlamaIsRead) {
    const std::string other = R"({"model_type": "newcomer", "hidden_act": "silu", "hidden_size": 64,
 "num_hidden_layers": 6, "num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 172,
 "max_position_embeddings": 32})";
    Transformer model = model_in(other);
    const Transformer same = model_in(llama_json());
    model.name = same.name;
    model.not_counted.clear();
    EXPECT_TRUE(model == same);
    EXPECT_TRUE(model.gated);
    EXPECT_EQ(model.key_value_heads, 4);
    EXPECT_EQ(model.head_width, 16);
    EXPECT_FALSE(model.tied);
}

TEST(TransformerConfig, OfAMultimodalModelIsReadFromItsText) {
    const Transformer text = model_in(llama_json());
    const std::string file = fmt::format(R"({{"model_type": "llava", "text_config": {},
 "tie_word_embeddings": true, "hidden_size": 9}})",
                                         llama_json());
    Transformer model = model_in(file);
    EXPECT_EQ(model.hidden, text.hidden);
    EXPECT_TRUE(model.tied);
    EXPECT_FALSE(text.tied);
}

TEST(TransformerConfig, NamesTheModelByItsFolderOrItsFile) {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder.path() / "mine-7b");
    EXPECT_EQ(read_transformer_config(folder.write("mine-7b/config.json", llama_json())).name, "mine-7b");
    EXPECT_EQ(read_transformer_config(folder.write("other-1.5b.json", llama_json())).name, "other-1.5b");
}

TEST(TransformerConfig, SaysWhichLayersHaveExperts) {
    const std::string experts = R"("num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32)";
    const auto layers = [&](const std::string& more) {
        const Transformer model = model_in(llama_json(experts + more));
        std::string letters;
        for (int layer = 0; layer < model.layers; ++layer)
            letters += model.has_experts(layer) ? 'e' : 'd';
        return letters;
    };
    EXPECT_EQ(layers(""), "eeeeee");
    EXPECT_EQ(layers(R"(, "decoder_sparse_step": 2)"), "dedede");
    EXPECT_EQ(layers(R"(, "mlp_only_layers": [0, 1])"), "ddeeee");
    EXPECT_EQ(layers(R"(, "first_k_dense_replace": 3)"), "dddeee");
    EXPECT_EQ(layers(R"(, "first_k_dense_replace": 1, "moe_layer_freq": 2)"), "ddeded");
    EXPECT_EQ(layers(R"(, "first_k_dense_replace": 5)"), "ddddde");
    EXPECT_EQ(layers(R"(, "first_k_dense_replace": 6)"), "dddddd");
    EXPECT_EQ(layers(R"(, "mlp_only_layers": [2])"), "eedeee");
    EXPECT_FALSE(model_in(llama_json(R"("num_experts": 0)")).experts);
    EXPECT_EQ(model_in(llama_json(experts + R"(, "n_shared_experts": 3)")).experts->shared_width, 96);
    EXPECT_EQ(model_in(llama_json(experts + R"(, "shared_expert_intermediate_size": 80)")).experts->shared_width, 80);
}

TEST(TransformerConfig, SaysWhichLayersHaveAWindow) {
    const auto layers = [&](const std::string& more) {
        const Transformer model = model_in(llama_json(R"("sliding_window": 8)" + more));
        std::string letters;
        for (int layer = 0; layer < model.layers; ++layer)
            letters += model.has_window(layer) ? 'w' : 'f';
        return letters;
    };
    EXPECT_EQ(layers(""), "wwwwww");
    EXPECT_EQ(layers(R"(, "use_sliding_window": false)"), "ffffff");
    EXPECT_EQ(layers(R"(, "max_window_layers": 6)"), "ffffff");
    const std::string s = R"("sliding_attention")", f = R"("full_attention")";
    const auto types = [](const std::vector<std::string>& listed) {
        return fmt::format(R"(, "layer_types": [{}])", fmt::join(listed, ", "));
    };
    EXPECT_EQ(layers(types({s, f, f, s, f, f})), "wffwff");
    EXPECT_EQ(layers(types({f, f, f, f, f, f})), "ffffff");
    const auto refuse = [&](const std::string& more, const std::vector<std::string>& parts) {
        expect_mistakes(llama_json(R"("sliding_window": 8)" + more), parts);
    };
    EXPECT_EQ(layers(types({s, s, f, s, s, f})), "wwfwwf");
    EXPECT_EQ(layers(R"(, "sliding_window_pattern": 3)"), "wwfwwf");
    EXPECT_EQ(layers(R"(, "max_window_layers": 2)"), "ffwwww");
    refuse(types({s, f}), {"'layer_types' has 2 values, but there are 6 layers"});
    refuse(types({f, f, f, f, f, R"("linear_attention")"}), {"'layer_types[5]' is 'linear_attention'"});
}

TEST(TransformerConfig, OfAttentionWithBiasHasIt) {
    EXPECT_FALSE(model_in(llama_json()).attention_bias);
    EXPECT_TRUE(model_in(llama_json(R"("attention_bias": true)")).attention_bias);
    EXPECT_TRUE(model_in(llama_json(R"("attention_bias": true, "mlp_bias": true)")).bias);
}

TEST(TransformerConfig, WithoutANeededKeyIsAMistake) {
    expect_mistakes(llama_json("", R"("num_attention_heads": 4)"),
                    {"the model has no hidden_size", "config.json:1:1", "write \"hidden_size\": .."});
    expect_mistakes(llama_json("", R"("hidden_size": null, "num_attention_heads": 4)"),
                    {"the model has no hidden_size", "config.json:3:"});
    expect_mistakes(llama_json("", R"("hidden_size": 64)"), {"the model has no num_attention_heads"});
    expect_mistakes(llama_json(R"("num_local_experts": 8)"), {"the model has no num_experts_per_tok"});
    expect_mistakes(llama_json(R"("kv_lora_rank": 8)"),
                    {"the model has no qk_nope_head_dim", "the model has no qk_rope_head_dim", "no v_head_dim"});
    expect_mistakes(R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100})",
                    {"the model has no max_position_embeddings"});
}

TEST(TransformerConfig, ThatContradictsItselfIsAMistake) {
    expect_mistakes(llama_json("", R"("hidden_size": 64, "num_attention_heads": 5)"),
                    {"5 heads do not divide a hidden size of 64", "\"head_dim\": ..", "config.json:3:"});
    EXPECT_EQ(model_in(llama_json(R"("head_dim": 12)", R"("hidden_size": 64, "num_attention_heads": 5)")).head_width,
              12);
    expect_mistakes(llama_json(R"("num_key_value_heads": 3)"),
                    {"4 heads do not divide into 3 groups", "config.json:4:"});
    expect_mistakes(llama_json(R"("n_embd": 128)"), {"'n_embd' is 128, but 'hidden_size' is 64", "remove one of them"});
    expect_mistakes(llama_json(R"("num_experts": 4, "num_experts_per_tok": 5)"), {"a token takes 5 experts of 4"});
    expect_mistakes(llama_json(R"("num_experts": 4, "num_experts_per_tok": 2, "mlp_only_layers": [6])"),
                    {"'mlp_only_layers[0]' is 6", "at most 5"});
}

TEST(TransformerConfig, OfAnotherKindOfModelIsAMistake) {
    expect_mistakes(llama_json(R"("is_encoder_decoder": true)"), {"the model has an encoder"});
    expect_mistakes(llama_json(R"("state_size": 8)"), {"'state_size' is of a model with Mamba-1"});
    std::string gelu = llama_json(R"("hidden_act": "gelu")");
    EXPECT_TRUE(model_in(gelu).gated);  // llama's MLP is, with any function
    gelu.replace(gelu.find("llama"), 5, "newcomer");
    expect_mistakes(gelu, {"the layers of 'newcomer' with gelu are not known", "config.json:4:"});
}

TEST(TransformerConfig, ThatCannotBeReadIsAMistake) {
    expect_mistakes("", {"the file must hold the keys of a config.json"});
    expect_mistakes("[1, 2]", {"the file must hold the keys of a config.json"});
    expect_mistakes("{\"model_type\": \"llama\", ", {"config.json:1:"});
    expect_mistakes("<html>not found</html>", {"config.json"});
    expect_mistakes(llama_json("", R"("hidden_size": "wide", "num_attention_heads": [4])"),
                    {"'hidden_size' is 'wide', which is no whole number", "'num_attention_heads' is a list"});
    expect_mistakes(llama_json("", R"("hidden_size": 99999999999999999999, "num_attention_heads": -1)"),
                    {"'hidden_size' is '99999999999999999999'", "it must be at least 1"});
    expect_mistakes(llama_json(R"("num_experts": 4096, "num_experts_per_tok": 2, "moe_intermediate_size": 1000000)",
                               R"("hidden_size": 131072, "num_attention_heads": 128)"),
                    {"the model has 9664", "models have at most 1000000000000000"});
    expect_says(refusal([] { read_transformer_config("nowhere/config.json"); }), {"nowhere/config.json"});
}

TEST(TransformerConfig, IsToldFromOtherFiles) {
    const TemporaryFolder folder;
    EXPECT_TRUE(is_transformer_config(folder.write("config.json", llama_json())));
    EXPECT_TRUE(is_transformer_config(folder.write("broken.json", "{\"model_type\": \"llama\", ")));
    EXPECT_FALSE(is_transformer_config(folder.write("layers.json", R"({"samples": 8, "layers": []})")));
    EXPECT_FALSE(is_transformer_config(folder.write("config.yaml", llama_json())));
    EXPECT_FALSE(is_transformer_config(folder.path().string()));
    EXPECT_FALSE(is_transformer_config("nowhere/config.json"));
}

}  // namespace
}  // namespace pw
