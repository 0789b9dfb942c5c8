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
enum class PositionKind : std::uint8_t { Learned, Rotary, Alibi, None };

// Attention with compressed keys and values (DeepSeek-V2, arXiv 2405.04434, section 2.1).
struct LatentAttention {
    int query_rank = 0;  // 0: queries are not compressed
    int key_value_rank = 0;
    int plain_width = 0, rotary_width = 0;  // of a head's query and key, without and with rotation
    int value_width = 0;                    // of a head's value
    bool operator==(const LatentAttention&) const = default;
};

// Mamba-2, whose heads pass a state from token to token (arXiv 2405.21060).
struct Mamba {
    int heads = 0, head_width = 0;
    int groups = 1;  // of heads that share the projections into the state and out of it
    int state = 0;   // numbers of the state for each number of a head
    int kernel = 0;  // tokens of the convolution before the scan
    int chunk = 0;   // tokens that the scan multiplies with one another, as attention does
    bool operator==(const Mamba&) const = default;

    std::int64_t inner() const { return std::int64_t{heads} * head_width; }
    std::int64_t shared() const { return std::int64_t{groups} * state; }  // width of a projection of all groups
    // FLOPs of the scan of a token: half of the products of a chunk as in causal attention, and the products into the
    // states and out of them (section 6).
    double scan_flops() const {
        return static_cast<double>(chunk) * static_cast<double>(shared() + inner()) +
               4.0 * static_cast<double>(inner()) * state;
    }
};

// How the tokens of a layer reach one another. Window: attention to the last Transformer::window tokens.
enum class Mixer : std::uint8_t { None, Attention, Window, Mamba };
// What a layer computes of each token after that.
enum class Feed : std::uint8_t { None, Mlp, Experts };
// The parts of a layer. Each part has a norm and is added to the residual stream.
struct LayerForm {
    Mixer mixer = Mixer::Attention;
    Feed feed = Feed::Mlp;
    auto operator<=>(const LayerForm&) const = default;

    bool has_attention() const { return mixer == Mixer::Attention || mixer == Mixer::Window; }
    int parts() const { return (mixer != Mixer::None ? 1 : 0) + (feed != Feed::None ? 1 : 0); }
};

// Layers whose MLP is a mixture of experts.
struct Experts {
    int count = 0;         // routed experts of a layer
    int active = 0;        // routed experts that compute each token
    int width = 0;         // of an expert's MLP
    int shared_width = 0;  // of the MLP that every token takes in addition, 0: none
    // Width of what routed experts read and write, 0: the hidden size. Else all routed experts of a layer share a
    // product into this width before them, and a product out of it after them (NVIDIA/Megatron-LM@d98e8a6,
    // megatron/core/transformer/moe/moe_layer.py, fc1_latent_proj and fc2_latent_proj).
    int latent = 0;
    bool operator==(const Experts&) const = default;

    // Returns the width of a token on its way to routed experts and back.
    int routed_width(int hidden) const { return latent > 0 ? latent : hidden; }
};

struct Transformer {
    std::string name = {};
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
    bool bare_keys = false;       // keys have no bias (whisper)
    bool causal = true;           // tokens attend to earlier tokens alone
    bool tied = false;            // the head shares the table of the embedding
    std::optional<LatentAttention> latent = {};
    std::optional<Experts> experts = {};
    std::optional<Mamba> mamba = {};
    int window = 0;            // tokens that attention reaches back in layers with Mixer::Window
    bool post_norms = false;   // the output of each part is normalised, too (gemma 2)
    bool parallel = false;     // attention and MLP read the same input (GPT-NeoX, arXiv 2204.06745, section 2.1)
    bool caps_logits = false;  // the head's output goes through tanh (gemma 2)
    // By layer, repeated if shorter. Empty: all layers have attention, with the window if there is one, and an MLP, or
    // experts if there are any.
    std::vector<LayerForm> forms = {};
    // Modules that each predict a further token (DeepSeek-V3, arXiv 2412.19437, section 2.2): the embedding of the
    // token, norms of both inputs, a product from twice the hidden size to it, a layer, and a norm before the head,
    // which all modules share.
    int mtp = 0;
    std::optional<LayerForm> mtp_form = {};  // absent: the form of the last layer
    // What a config.json has that is not counted here, each in a few words.
    std::vector<std::string> not_counted = {};
    bool operator==(const Transformer&) const = default;

    LayerForm form(int layer) const;
    // Returns the pairs of a query and a key of `tokens` tokens that reach this many tokens back, or of their window.
    double pairs(double tokens, double reach) const { return tokens * reach - (causal ? reach * reach / 2 : 0); }
    LayerForm form_of_mtp() const { return mtp_form.value_or(form(layers - 1)); }
    bool has_experts(int layer) const { return form(layer).feed == Feed::Experts; }
    bool has_window(int layer) const { return form(layer).mixer == Mixer::Window; }
    // Returns the greatest number of tensor ranks: it divides the heads of attention and of Mamba.
    int most_tensor_ranks() const;
};

// The parameters of a part of a model.
struct TransformerParameters {
    std::int64_t embedding = 0;  // table of tokens, and of learned positions
    std::int64_t head = 0;       // final norm, and the matrix of the head unless it is tied
    std::int64_t attention = 0;  // of a layer with attention and an MLP, with the norms of the layer
    std::int64_t mamba = 0;      // of a layer's Mamba-2, without the layer's norms
    std::int64_t dense = 0;      // of a dense layer's MLP
    std::int64_t shared = 0;     // of a layer with experts: router, shared MLP, products around a latent width
    std::int64_t routed = 0;     // of a layer with experts: all routed experts
    std::int64_t mtp = 0;        // of a module that predicts a further token, without embedding and head
    std::int64_t total = 0;      // of the model
    std::int64_t active = 0;     // used for one token: `total` without the experts that the token does not take
};
TransformerParameters parameters_of(const Transformer& model);
// Returns the parameters of a layer that a token uses, with the layer's norms.
std::int64_t active_parameters_of(const Transformer& model, const LayerForm& form);

// Returns the presets of this build (workloads/models/transformers.yaml), in the order of the file.
const std::vector<Transformer>& transformer_presets();
const Transformer* find_transformer(std::string_view name);  // null when there is none

// Returns whether a JSON file is the configuration of a transformer (config.json). False for a file that cannot be
// read.
bool is_transformer_config(const std::string& path);
// Reads a config.json as Hugging Face's models have it, of the families in docs/transformers.md and of families with
// layers like llama's.
// Throws Error (BadInput) with every mistake of the file and its line.
Transformer read_transformer_config(const std::string& path);

}  // namespace pw
