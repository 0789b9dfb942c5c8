// Decoder-only transformers by the numbers that give their shapes: presets by name, and config.json files of Hugging
// Face. From these follow parameters, products of matrices and sizes of tensors.
#pragma once

#include "workloads/text/choice.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// LayerNorm has a bias in addition to its weight, BareLayerNorm has none.
enum class NormKind : std::uint8_t { LayerNorm, BareLayerNorm, RmsNorm };
enum class PositionKind : std::uint8_t { Learned, Rotary, Alibi };

// Attention with compressed keys and values (DeepSeek-V2, arXiv 2405.04434, section 2.1).
struct LatentAttention {
    int query_rank = 0;  // 0: queries are not compressed
    int key_value_rank = 0;
    int plain_width = 0, rotary_width = 0;  // of a head's query and key, without and with rotation
    int value_width = 0;                    // of a head's value
    bool operator==(const LatentAttention&) const = default;
};

// Layers whose MLP is a mixture of experts.
struct Experts {
    int count = 0;         // routed experts of a layer
    int active = 0;        // routed experts that compute each token
    int width = 0;         // of an expert's MLP
    int shared_width = 0;  // of the MLP that every token takes in addition, 0: none
    int first = 0;         // the first layer that has experts, earlier layers are dense
    int every = 1;         // distance of layers with experts, from `first` on
    bool operator==(const Experts&) const = default;
};

struct Transformer {
    std::string name;
    int hidden = 0;
    int layers = 0;
    int heads = 0, key_value_heads = 0;
    int head_width = 0;  // of a head's query and key
    int ffn = 0;         // width of a dense layer's MLP
    bool gated = false;  // the MLP multiplies two products (SwiGLU): three matrices, else two
    int vocabulary = 0;  // as the model has it (frameworks may pad it)
    int positions = 0;   // longest sequence (0: not said), rows of the table where positions are learned
    NormKind norm = NormKind::LayerNorm;
    PositionKind position = PositionKind::Learned;
    bool bias = false;            // of all linear layers but the head
    bool attention_bias = false;  // of queries, keys and values, if `bias` is false
    bool normed_heads = false;    // queries and keys are normalised by head (QK norm)
    bool tied = false;            // the head shares the table of the embedding
    std::optional<LatentAttention> latent = {};
    std::optional<Experts> experts = {};
    int window = 0;        // tokens that attention reaches back in some layers, 0: all
    int window_every = 1;  // distance of layers with the window, from the first on
    bool operator==(const Transformer&) const = default;

    bool has_experts(int layer) const;
    bool has_window(int layer) const;
};

// The parameters of a part of a model.
struct TransformerParameters {
    std::int64_t embedding = 0;  // table of tokens, and of learned positions
    std::int64_t head = 0;       // final norm, and the matrix of the head unless it is tied
    std::int64_t attention = 0;  // of a layer, with the norms of the layer
    std::int64_t dense = 0;      // of a dense layer's MLP
    std::int64_t shared = 0;     // of a layer with experts: router and shared MLP
    std::int64_t routed = 0;     // of a layer with experts: all routed experts
    std::int64_t total = 0;      // of the model
    std::int64_t active = 0;     // used for one token: `total` without the experts that the token does not take
};
TransformerParameters parameters_of(const Transformer& model);

// Returns the presets of this build (workloads/models/transformers.yaml), in the order of the file.
const std::vector<Transformer>& transformer_presets();
const Transformer* find_transformer(std::string_view name);  // null when there is none

// Returns whether a JSON file is the configuration of a transformer (config.json). False for a file that cannot be
// read.
bool is_transformer_config(const std::string& path);
// Reads a config.json as Hugging Face's models have it, of the families gpt2, llama, mistral, mixtral, qwen2, qwen3,
// qwen3_moe, deepseek_v2, deepseek_v3, kimi, gpt_oss, mpt, bloom, nemotron, grok and families with the layers of llama.
// Throws Error (BadInput) with every mistake of the file and its line.
Transformer read_transformer_config(const std::string& path);

}  // namespace pw
