// Hugging Face's config.json.
#include "workloads/models/transformer_keys.h"

#include "workloads/error.h"
#include "workloads/models/transformers_text.h"
#include "workloads/text/embedded.h"
#include "workloads/text/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <utility>

namespace pw {
namespace {

const KeyNames kHeadNames = {"num_attention_heads", "n_head", "n_heads"};

void read_heads(const Yaml& at, const Family& family, Transformer& model) {
    if (family.mixer == Mixer::Mamba)
        return;
    model.heads = needed_number(at, kHeadNames, kMostHeads, family.heads);
    model.key_value_heads = number_or(at, {"num_key_value_heads"},
                                      family.key_value_heads > 0 ? family.key_value_heads : model.heads, 1, kMostHeads);
    const Yaml grouped = at["attn_config"]["kv_n_heads"];
    if (grouped.present())
        model.key_value_heads = static_cast<int>(grouped.integer(model.heads, 1, kMostHeads));
    if (model.heads % model.key_value_heads != 0)
        first_of(at, {"num_key_value_heads", "attn_config"})
            .complain(fmt::format("{} heads do not divide into {} groups, one for each head of keys and values",
                                  model.heads, model.key_value_heads),
                      "correct the heads, or the heads of keys and values");
    if (at["kv_lora_rank"].present()) {
        LatentAttention latent;
        latent.query_rank = number_or(at, {"q_lora_rank"}, 0, 0, kMostHidden);
        latent.key_value_rank = needed_number(at, {"kv_lora_rank"}, kMostHidden);
        latent.plain_width = needed_number(at, {"qk_nope_head_dim"}, kMostHeadWidth);
        latent.rotary_width = needed_number(at, {"qk_rope_head_dim"}, kMostHeadWidth);
        latent.value_width = needed_number(at, {"v_head_dim"}, kMostHeadWidth);
        model.head_width = latent.plain_width + latent.rotary_width;
        model.latent = latent;
        return;
    }
    const KeyNames widths = {"head_dim", "attention_head_dim"};
    const int even = std::max(1, model.hidden / model.heads);
    model.head_width = number_or(at, widths, family.head_width > 0 ? family.head_width : even, 1, kMostHeadWidth);
    if (!first_of(at, widths).present() && family.head_width == 0 &&
        (model.hidden % model.heads != 0 || model.hidden / model.heads > kMostHeadWidth))
        first_of(at, kHeadNames)
            .complain(fmt::format("{} heads do not divide a hidden size of {}", model.heads, model.hidden),
                      "correct one of them, or write the width of a head as \"head_dim\": ..");
}

void read_kinds(const Yaml& root, const Yaml& at, const Family& family, Transformer& model) {
    model.norm = family.norm;
    model.position = family.position;
    model.gated = family.gated;
    model.post_norms = family.post_norms;
    model.parallel = family.parallel && flag_or(at["use_parallel_residual"], true);
    model.caps_logits = at["final_logit_softcapping"].present();
    model.normed_heads = family.normed_heads;
    const bool attention_bias = flag_or(at["attention_bias"], family.attention_bias);
    model.bias = family.bias || (attention_bias && flag_or(at["mlp_bias"], false));
    const Yaml tied = at["tie_word_embeddings"];
    model.tied = flag_or(tied.present() ? tied : root["tie_word_embeddings"], family.tied);
    if (flag_or(at["no_bias"], false)) {
        model.bias = false;
        model.norm = NormKind::BareLayerNorm;
    }
    const Yaml attention = at["attn_config"];
    if (flag_or(attention["alibi"], false))
        model.position = PositionKind::Alibi;
    else if (flag_or(attention["rope"], false))
        model.position = PositionKind::Rotary;
    model.attention_bias = attention_bias && !model.bias;
}

Transformer read_transformer(std::string name, const Yaml& root) {
    Transformer model{.name = std::move(name)};
    if (!root.is_map()) {
        root.complain("the file must hold the keys of a config.json", "write {\"hidden_size\": 4096, ...}");
        return model;
    }
    const Yaml text = first_of(root, {"text_config", "llm_config"});
    const Yaml at = text.is_map() ? text : root;
    const Family& family = family_of(root, at);
    refuse_other_kinds(root, at, family);
    read_kinds(root, at, family, model);
    model.hidden = needed_number(at, {"hidden_size", "n_embd", "n_embed", "d_model"}, kMostHidden);
    model.layers = needed_number(at, {"num_hidden_layers", "n_layer", "n_layers"}, kMostTransformerLayers);
    model.vocabulary = needed_number(at, {"vocab_size"}, kMostWords, family.vocabulary);
    const KeyNames positions = {"max_position_embeddings", "n_positions", "max_seq_len", "seq_length"};
    model.positions = model.position == PositionKind::Learned ? needed_number(at, positions, kMostPositions)
                                                              : number_or(at, positions, 0, 1, kMostPositions);
    read_heads(at, family, model);
    const KeyNames widths = {"intermediate_size", "n_inner"};
    model.ffn =
        family.feed == Feed::None ? 0
        : family.ffn_of_hidden == 0
            ? needed_number(at, widths, kMostWidth)
            : number_or(at, widths, model.hidden * number_or(at, {"expansion_ratio"}, family.ffn_of_hidden, 1, 16), 1,
                        kMostWidth);
    read_experts(at, model);
    read_mamba(at, family, model);
    read_forms(at, family, model);
    model.not_counted = parts_not_counted(root, at, family);
    if (root.source().clean() && parameters_of(model).total > kMostTransformerParameters)
        root.complain(fmt::format("the model has {} parameters", parameters_of(model).total),
                      fmt::format("models have at most {}", kMostTransformerParameters));
    return model;
}

// "llama-3-8b/config.json" is the model llama-3-8b, and so is "llama-3-8b.json".
std::string name_of_config(const std::string& path) {
    const std::filesystem::path file(path);
    const std::string folder = file.parent_path().filename().string();
    return file.stem() == "config" && !folder.empty() && folder != "." && folder != ".." ? folder
                                                                                         : file.stem().string();
}

constexpr const char* kConfigKeys[] = {"\"model_type\"", "\"architectures\""};
constexpr const char* kConfigHelp = "name a config.json of Hugging Face that can be read";

}  // namespace

const std::vector<Transformer>& transformer_presets() {
    static const std::vector<Transformer> presets = [] {
        const Yaml root = parse_embedded("the transformers of this build", kTransformersText);
        std::vector<Transformer> models;
        for (const auto& [name, at] : root["models"].entries()) {
            at.allow({"config", "source"});
            models.push_back(read_transformer(name, at["config"]));
        }
        root.source().throw_if_mistaken();
        return models;
    }();
    return presets;
}

const Transformer* find_transformer(std::string_view name) {
    const std::vector<Transformer>& presets = transformer_presets();
    const auto found =
        std::find_if(presets.begin(), presets.end(), [&](const Transformer& model) { return model.name == name; });
    return found == presets.end() ? nullptr : &*found;
}

bool is_transformer_config(const std::string& path) {
    std::error_code error;
    if (std::filesystem::path(path).extension() != ".json" || !std::filesystem::is_regular_file(path, error))
        return false;
    try {
        const std::string text = read_text(path, kConfigHelp);
        return std::any_of(std::begin(kConfigKeys), std::end(kConfigKeys),
                           [&](const char* key) { return text.find(key) != std::string::npos; });
    } catch (const Error&) {
        return false;
    }
}

Transformer read_transformer_config(const std::string& path) {
    const Yaml root = Yaml::parse(std::make_shared<Source>(path, read_text(path, kConfigHelp)));
    Transformer model = read_transformer(name_of_config(path), root);
    root.source().throw_if_mistaken();
    return model;
}

}  // namespace pw
