// Hugging Face's config.json: keys by the names of all families, and what the code of a family fixes.
#include "workloads/models/transformer.h"

#include "workloads/error.h"
#include "workloads/models/transformers_text.h"
#include "workloads/text/embedded.h"
#include "workloads/text/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <utility>

namespace pw {
namespace {

// What the code of a family has where its files do not say otherwise.
struct Family {
    std::string_view type;  // the beginning of model_type
    NormKind norm = NormKind::RmsNorm;
    PositionKind position = PositionKind::Rotary;
    bool gated = true;
    bool bias = false;
    bool attention_bias = false;
    bool normed_heads = false;
    bool tied = false;
    int ffn_of_hidden = 0;  // width of the MLP in hidden sizes, 0: files say it
    int window_every = 1;
};
constexpr Family gpt_family(std::string_view type, PositionKind position) {
    return {.type = type,
            .norm = NormKind::LayerNorm,
            .position = position,
            .gated = false,
            .bias = true,
            .tied = true,
            .ffn_of_hidden = 4};
}
// The first row that fits counts. The last row is for unknown types, which are assumed to have the layers of llama.
constexpr Family kFamilies[] = {
    gpt_family("gpt2", PositionKind::Learned),
    gpt_family("mpt", PositionKind::Learned),
    gpt_family("bloom", PositionKind::Alibi),
    {.type = "nemotron", .norm = NormKind::LayerNorm, .gated = false},
    {.type = "qwen2", .attention_bias = true},
    {.type = "qwen3", .normed_heads = true},
    {.type = "gpt_oss", .bias = true, .window_every = 2},
    {.type = "llama"},
    {.type = "mistral"},
    {.type = "mixtral"},
    {.type = "deepseek"},
    {.type = "kimi"},
    {.type = "grok"},
    {.type = ""},
};

// Keys of models whose layers differ from a decoder-only transformer's here.
struct OtherKind {
    std::string_view key, words;
};
constexpr OtherKind kOtherKinds[] = {
    {"hybrid_override_pattern", "state-space layers"},
    {"mamba_num_heads", "state-space layers"},
    {"state_size", "state-space layers"},
    {"linear_num_key_heads", "layers of linear attention"},
    {"linear_attn_config", "layers of linear attention"},
    {"attention_chunk_size", "attention within chunks"},
};

// Bounds with which the parameters of a model stay far below 2^63.
constexpr std::int64_t kMostHidden = 1 << 17, kMostWidth = 1 << 20, kMostHeads = 1 << 12, kMostHeadWidth = 1 << 12,
                       kMostExperts = 1 << 12, kMostTransformerLayers = 1 << 10, kMostWords = 1 << 24,
                       kMostPositions = 1 << 30, kMostTransformerParameters = 1'000'000'000'000'000;

using KeyNames = std::initializer_list<std::string_view>;

const KeyNames kHeadNames = {"num_attention_heads", "n_head", "n_heads"},
               kActiveNames = {"num_experts_per_tok", "experts_per_token", "num_experts_per_token"};

// Returns the value under the first of the names that has one.
Yaml first_of(const Yaml& at, KeyNames names) {
    for (const std::string_view name : names)
        if (at[name].present())
            return at[name];
    return at[*names.begin()];
}

// The same, and the values under the remaining names must be equal.
Yaml only_of(const Yaml& at, KeyNames names) {
    const Yaml found = first_of(at, names);
    for (const std::string_view name : names)
        if (const Yaml other = at[name]; other.is_text() && found.is_text() && other.text() != found.text())
            other.complain(
                fmt::format("'{}' is {}, but '{}' is {}", other.path(), other.text(), found.path(), found.text()),
                "remove one of them");
    return found;
}

int number_or(const Yaml& at, KeyNames names, std::int64_t fallback, std::int64_t least, std::int64_t most) {
    const Yaml value = only_of(at, names);
    return static_cast<int>(value.present() ? value.integer(fallback, least, most) : fallback);
}

int needed_number(const Yaml& at, KeyNames names, std::int64_t most) {
    const Yaml value = only_of(at, names);
    if (!value.present())
        value.complain(
            fmt::format("the model has no {}", *names.begin()),
            fmt::format("write \"{}\": ..; what transformers takes by default is not known here", *names.begin()));
    return static_cast<int>(value.present() ? value.integer(1, 1, most) : 1);
}

bool flag_or(const Yaml& value, bool fallback) { return value.present() ? value.boolean(fallback) : fallback; }

// The MLP of another type may have other matrices if the function between them is not llama's: a mistake.
const Family& family_of(const Yaml& root, const Yaml& at) {
    const Yaml said = at["model_type"].present() ? at["model_type"] : root["model_type"];
    const std::string type = said.is_text() ? said.text() : "";
    const Family& family = *std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                         [&](const Family& row) { return type.starts_with(row.type); });
    const Yaml function = at["hidden_act"];
    if (family.type.empty() && function.is_text() && function.text() != "silu" && function.text() != "swish")
        function.complain(fmt::format("the layers of '{}' with {} are not known", type, function.text()),
                          "write \"model_type\": \"llama\" if they are those of llama: gated, without biases");
    return family;
}

void refuse_other_kinds(const Yaml& root, const Yaml& at) {
    const char* help = "name a decoder-only transformer whose layers are attention and MLP";
    for (const OtherKind& kind : kOtherKinds)
        if (at[kind.key].present())
            at[kind.key].complain(fmt::format("'{}' is of a model with {}", at[kind.key].path(), kind.words), help);
    if (root["is_encoder_decoder"].present() && root["is_encoder_decoder"].boolean(false))
        root["is_encoder_decoder"].complain("the model has an encoder", help);
}

void read_heads(const Yaml& at, Transformer& model) {
    model.heads = needed_number(at, kHeadNames, kMostHeads);
    model.key_value_heads = number_or(at, {"num_key_value_heads"}, model.heads, 1, kMostHeads);
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
    model.head_width = number_or(at, {"head_dim"}, std::max(1, model.hidden / model.heads), 1, kMostHeadWidth);
    if (!at["head_dim"].present() && (model.hidden % model.heads != 0 || model.hidden / model.heads > kMostHeadWidth))
        first_of(at, kHeadNames)
            .complain(fmt::format("{} heads do not divide a hidden size of {}", model.heads, model.hidden),
                      "correct one of them, or write the width of a head as \"head_dim\": ..");
}

// Layers at equal distances: `first`, first + every, ..
struct Spacing {
    int first = 0, every = 1;
};

// Returns the spacing of the marked layers, of which there is at least one, or nothing if the spacing is uneven.
std::optional<Spacing> spacing_of(const std::vector<bool>& marked) {
    const auto layers = static_cast<int>(marked.size());
    const auto next = [&](int from) {
        while (from < layers && !marked[static_cast<std::size_t>(from)])
            ++from;
        return from;
    };
    const int first = next(0);
    const Spacing spacing{first, std::max(1, next(first + 1) - first)};
    for (int layer = 0; layer < layers; ++layer)
        if (marked[static_cast<std::size_t>(layer)] != (layer >= first && (layer - spacing.first) % spacing.every == 0))
            return std::nullopt;
    return spacing;
}

bool any_layer(const std::vector<bool>& marked) {
    return std::find(marked.begin(), marked.end(), true) != marked.end();
}

std::vector<bool> layers_with_experts(const Yaml& at, int layers) {
    const int step = number_or(at, {"decoder_sparse_step"}, 1, 1, kMostTransformerLayers);
    const int dense = number_or(at, {"first_k_dense_replace"}, 0, 0, kMostTransformerLayers);
    const int frequency = number_or(at, {"moe_layer_freq"}, 1, 1, kMostTransformerLayers);
    std::vector<bool> marked(static_cast<std::size_t>(layers));
    for (int layer = 0; layer < layers; ++layer)
        marked[static_cast<std::size_t>(layer)] = (layer + 1) % step == 0 && layer >= dense && layer % frequency == 0;
    if (at["mlp_only_layers"].present())
        for (const Yaml& layer : at["mlp_only_layers"].items())
            marked[static_cast<std::size_t>(layer.integer(0, 0, layers - 1))] = false;
    return marked;
}

void read_experts(const Yaml& at, Transformer& model) {
    const KeyNames counts = {"num_local_experts", "num_experts", "n_routed_experts"};
    const int count = number_or(at, counts, 0, 0, kMostExperts);
    if (count == 0)
        return;
    Experts experts{.count = count};
    experts.active = needed_number(at, kActiveNames, kMostExperts);
    if (experts.active > count)
        first_of(at, kActiveNames)
            .complain(fmt::format("a token takes {} experts of {}", experts.active, count), "correct one of them");
    experts.width = number_or(at, {"moe_intermediate_size"}, model.ffn, 1, kMostWidth);
    experts.shared_width =
        number_or(at, {"shared_expert_intermediate_size"},
                  std::int64_t{experts.width} * number_or(at, {"n_shared_experts"}, 0, 0, 256), 0, kMostWidth);
    const std::vector<bool> marked = layers_with_experts(at, model.layers);
    if (!any_layer(marked))
        return;
    const std::optional<Spacing> spacing = spacing_of(marked);
    if (!spacing)
        first_of(at, {"mlp_only_layers", "moe_layer_freq"})
            .complain("the layers with experts are not spaced evenly",
                      "layers with experts must follow at equal distances, after any number of dense ones");
    experts.first = spacing ? spacing->first : 0;
    experts.every = spacing ? spacing->every : 1;
    model.experts = experts;
}

std::vector<bool> layers_with_window(const Yaml& at, const Transformer& model) {
    std::vector<bool> marked(static_cast<std::size_t>(model.layers));
    const int first = number_or(at, {"max_window_layers"}, 0, 0, kMostTransformerLayers);
    for (int layer = first; layer < model.layers; ++layer)
        marked[static_cast<std::size_t>(layer)] = layer % model.window_every == 0;
    const Yaml types = at["layer_types"];
    const std::vector<Yaml> listed = types.present() ? types.items() : std::vector<Yaml>{};
    if (types.is_list() && listed.size() != marked.size())
        types.complain(
            fmt::format("'{}' has {} values, but there are {} layers", types.path(), listed.size(), model.layers),
            "write one for each layer");
    for (std::size_t layer = 0; layer < std::min(listed.size(), marked.size()); ++layer)
        marked[layer] = listed[layer].choice("", {"sliding_attention", "full_attention"}) == "sliding_attention";
    return marked;
}

void read_window(const Yaml& at, Transformer& model) {
    const std::vector<bool> marked = layers_with_window(at, model);
    model.window_every = 1;
    const Yaml size = at["sliding_window"];
    if (!size.present() || !flag_or(at["use_sliding_window"], true) || !any_layer(marked))
        return;
    model.window = number_or(at, {"sliding_window"}, 0, 0, kMostPositions);
    const std::optional<Spacing> spacing = spacing_of(marked);
    if (!spacing || spacing->first != 0)
        first_of(at, {"layer_types", "max_window_layers", "sliding_window"})
            .complain("the layers with a window are not spaced evenly from the first one",
                      "write \"sliding_window\": null to count attention in full, which takes longer");
    else
        model.window_every = spacing->every;
}

void read_kinds(const Yaml& root, const Yaml& at, const Family& family, Transformer& model) {
    model.norm = family.norm;
    model.position = family.position;
    model.gated = family.gated;
    model.window_every = family.window_every;
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
    const Yaml at = root["text_config"].is_map() ? root["text_config"] : root;
    refuse_other_kinds(root, at);
    const Family& family = family_of(root, at);
    read_kinds(root, at, family, model);
    model.hidden = needed_number(at, {"hidden_size", "n_embd", "n_embed", "d_model"}, kMostHidden);
    model.layers = needed_number(at, {"num_hidden_layers", "n_layer", "n_layers"}, kMostTransformerLayers);
    model.vocabulary = needed_number(at, {"vocab_size"}, kMostWords);
    const KeyNames positions = {"max_position_embeddings", "n_positions", "max_seq_len", "seq_length"};
    model.positions = model.position == PositionKind::Learned ? needed_number(at, positions, kMostPositions)
                                                              : number_or(at, positions, 0, 1, kMostPositions);
    read_heads(at, model);
    const KeyNames widths = {"intermediate_size", "n_inner"};
    model.ffn =
        family.ffn_of_hidden == 0
            ? needed_number(at, widths, kMostWidth)
            : number_or(at, widths, model.hidden * number_or(at, {"expansion_ratio"}, family.ffn_of_hidden, 1, 16), 1,
                        kMostWidth);
    read_experts(at, model);
    read_window(at, model);
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
