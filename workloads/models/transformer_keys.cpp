#include "workloads/models/transformer_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace pw {
namespace {

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
    {.type = "gpt_neox", .norm = NormKind::LayerNorm, .gated = false, .bias = true, .parallel = true},
    {.type = "nemotron_h", .position = PositionKind::None, .gated = false},
    {.type = "nemotron", .norm = NormKind::LayerNorm, .gated = false},
    {.type = "qwen2", .attention_bias = true},
    {.type = "qwen3", .normed_heads = true},
    {.type = "gpt_oss", .bias = true, .full_every = 2},
    {.type = "gemma", .is_whole = true, .tied = true},
    {.type = "gemma2", .tied = true, .post_norms = true, .full_every = 2},
    {.type = "gemma3",
     .normed_heads = true,
     .tied = true,
     .post_norms = true,
     .full_every = 6,
     .heads = 8,
     .key_value_heads = 4,
     .head_width = 256,
     .vocabulary = 262'208},
    {.type = "mamba2", .position = PositionKind::None, .mixer = Mixer::Mamba, .feed = Feed::None},
    {.type = "bamba"},
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
    {"mamba_dt_rank", "Mamba-1"},
    {"state_size", "Mamba-1"},
    {"mamba_d_ssm", "attention and Mamba-2 side by side in a layer"},
    {"hybrid_layer_ids", "an attention layer in several places"},
    {"linear_num_key_heads", "layers of linear attention"},
    {"linear_attn_config", "layers of linear attention"},
    {"attention_chunk_size", "attention within chunks"},
};

// Keys that change costs or parameters and are not counted. A value of 0 or false is no such part.
struct NotCounted {
    std::string_view key, words;
};
constexpr NotCounted kNotCounted[] = {
    {"vision_config", "the part for images"},
    {"audio_config", "the part for sounds"},
    {"talker_config", "the part that speaks"},
    {"attn_logit_softcapping", "the cap of attention's scores"},
    {"index_topk", "the choice of keys that attention reads (attention is counted in full)"},
    {"o_lora_rank", "the compressed output of attention"},
    {"hc_mult", "several residual streams"},
    {"hidden_size_per_layer_input", "an embedding for each layer"},
    {"altup_num_inputs", "several residual streams"},
    {"laurel_rank", "products of low rank, added to the residual stream"},
    {"num_kv_shared_layers", "layers that share keys and values"},
    {"use_double_wide_mlp", "wider MLPs of some layers"},
    {"parallel_attn", "attention and MLP with the same input"},
};

std::string type_of(const Yaml& root, const Yaml& at) {
    const Yaml said = at["model_type"].present() ? at["model_type"] : root["model_type"];
    return said.is_text() ? said.text() : "";
}

bool says_none(const Yaml& value) {
    return !value.present() || (value.is_text() && (value.text() == "0" || value.text() == "false"));
}

// Returns the value under the first of the names that has one. The values under the remaining names must be equal.
Yaml only_of(const Yaml& at, KeyNames names) {
    const Yaml found = first_of(at, names);
    for (const std::string_view name : names)
        if (const Yaml other = at[name]; other.is_text() && found.is_text() && other.text() != found.text())
            other.complain(
                fmt::format("'{}' is {}, but '{}' is {}", other.path(), other.text(), found.path(), found.text()),
                "remove one of them");
    return found;
}

}  // namespace

Yaml first_of(const Yaml& at, KeyNames names) {
    for (const std::string_view name : names)
        if (at[name].present())
            return at[name];
    return at[*names.begin()];
}

int number_or(const Yaml& at, KeyNames names, std::int64_t fallback, std::int64_t least, std::int64_t most) {
    const Yaml value = only_of(at, names);
    return static_cast<int>(value.present() ? value.integer(fallback, least, most) : fallback);
}

int needed_number(const Yaml& at, KeyNames names, std::int64_t most, int fallback) {
    const Yaml value = only_of(at, names);
    if (!value.present() && fallback > 0)
        return fallback;
    if (!value.present())
        value.complain(
            fmt::format("the model has no {}", *names.begin()),
            fmt::format("write \"{}\": ..; what transformers takes by default is not known here", *names.begin()));
    return static_cast<int>(value.present() ? value.integer(1, 1, most) : 1);
}

bool flag_or(const Yaml& value, bool fallback) { return value.present() ? value.boolean(fallback) : fallback; }

const Family& family_of(const Yaml& root, const Yaml& at) {
    const std::string type = type_of(root, at);
    const Family& family = *std::find_if(std::begin(kFamilies), std::end(kFamilies), [&](const Family& row) {
        return row.is_whole ? type == row.type : type.starts_with(row.type);
    });
    const Yaml function = first_of(at, {"hidden_act", "hidden_activation"});
    if (family.type.empty() && function.is_text() && function.text() != "silu" && function.text() != "swish")
        function.complain(fmt::format("the layers of '{}' with {} are not known", type, function.text()),
                          "write \"model_type\": \"llama\" if they are those of llama: gated, without biases");
    return family;
}

void refuse_other_kinds(const Yaml& root, const Yaml& at, const Family& family) {
    const char* help = "name a decoder-only transformer whose layers are attention, Mamba-2 and MLP";
    for (const OtherKind& kind : kOtherKinds)
        if (at[kind.key].present() && family.mixer != Mixer::Mamba)
            at[kind.key].complain(fmt::format("'{}' is of a model with {}", at[kind.key].path(), kind.words), help);
    if (root["is_encoder_decoder"].present() && root["is_encoder_decoder"].boolean(false))
        root["is_encoder_decoder"].complain("the model has an encoder", help);
}

std::vector<std::string> parts_not_counted(const Yaml& root, const Yaml& at, const Family& family) {
    std::vector<std::string> parts;
    if (family.type.empty() && !type_of(root, at).empty())
        parts.push_back(fmt::format("whatever layers of '{}' have other than llama's (model_type)", type_of(root, at)));
    for (const NotCounted& row : kNotCounted)
        if (!says_none(at[row.key]) || !says_none(root[row.key]))
            parts.push_back(fmt::format("{} ({})", row.words, row.key));
    return parts;
}

}  // namespace pw
