// The part of a config.json for images or sounds.
#include "workloads/error.h"
#include "workloads/models/encoder.h"
#include "workloads/models/transformer_keys.h"
#include "workloads/text/files.h"

#include <algorithm>
#include <memory>

namespace pw {
namespace {

constexpr int kColours = 3;

// What the encoder of a file is read from.
struct EncoderSource {
    const Yaml& root;
    const Yaml& at;  // the part for images or sounds
    int hidden = 0;  // of the decoder
};

int number_of(const EncoderSource& from, KeyNames names, std::int64_t most) {
    return needed_number(from.at, names, most);
}

void set_heads(Transformer& blocks, int heads) {
    blocks.heads = blocks.key_value_heads = heads;
    blocks.head_width = std::max(1, blocks.hidden / heads);
}

// Blocks by the usual names of keys.
void read_blocks(const EncoderSource& from, Transformer& blocks) {
    blocks.hidden = number_of(from, {"hidden_size"}, kMostHidden);
    blocks.layers = number_of(from, {"num_hidden_layers", "depth"}, kMostTransformerLayers);
    blocks.ffn = number_of(from, {"intermediate_size"}, kMostWidth);
    set_heads(blocks, number_of(from, {"num_attention_heads", "num_heads"}, kMostHeads));
}

// Patches of a square image.
void read_patches(const EncoderSource& from, Encoder& encoder) {
    const int patch = number_of(from, {"patch_size"}, kMostPatch);
    const int side = number_of(from, {"image_size"}, kMostImage) / patch;
    encoder.tokens = std::max(1, side * side);
    encoder.inputs = kColours * patch * patch;
}

// Two matrices with biases, of which the first is as wide as the decoder.
void set_projector_of_llava(const EncoderSource& from, Encoder& encoder) {
    encoder.projector = from.hidden;
    encoder.other_of_projector = 2 * std::int64_t{from.hidden};
}

Encoder read_clip(const EncoderSource& from) {
    Encoder encoder{.blocks = {.bias = true, .causal = false}, .unread = 1};
    read_blocks(from, encoder.blocks);
    read_patches(from, encoder);
    const std::int64_t hidden = encoder.blocks.hidden;
    encoder.other = hidden + hidden * encoder.all_tokens() + 4 * hidden;  // first token, positions, two norms
    set_projector_of_llava(from, encoder);
    return encoder;
}

// Gemma 3 averages tokens and multiplies with one matrix after a norm.
Encoder read_siglip(const EncoderSource& from) {
    Encoder encoder{.blocks = {.bias = true, .causal = false}};
    read_blocks(from, encoder.blocks);
    read_patches(from, encoder);
    const std::int64_t hidden = encoder.blocks.hidden;
    encoder.other = hidden + hidden * encoder.tokens + 2 * hidden;  // bias, positions, the last norm
    if (const Yaml tokens = from.root["mm_tokens_per_image"]; tokens.present()) {
        encoder.merged = std::max(1, encoder.tokens / static_cast<int>(tokens.integer(256, 1, kMostPositions)));
        encoder.pools = true;
        encoder.other_of_projector = hidden;
    } else {
        set_projector_of_llava(from, encoder);
    }
    return encoder;
}

// The merger of both: a norm, and two matrices with biases, of which the first is as wide as the tokens it joins.
void set_merger(const EncoderSource& from, int norms, Encoder& encoder) {
    const int patch = number_or(from.at, {"patch_size", "spatial_patch_size"}, 14, 1, kMostPatch);
    const int side = number_or(from.at, {"spatial_merge_size"}, 2, 1, 64);
    encoder.inputs = kColours * number_or(from.at, {"temporal_patch_size"}, 2, 1, 64) * patch * patch;
    encoder.merged = side * side;
    encoder.projector = encoder.projected();
    encoder.other_of_projector = std::int64_t{norms} * encoder.blocks.hidden + encoder.projector + from.hidden;
}

// The width of the blocks is `embed_dim`, and `hidden_size` is the decoder's.
Encoder read_qwen2_vl(const EncoderSource& from) {
    Encoder encoder{.blocks = {.position = PositionKind::Rotary, .bias = true, .causal = false}};
    Transformer& blocks = encoder.blocks;
    blocks.hidden = number_of(from, {"embed_dim"}, kMostHidden);
    blocks.layers = number_of(from, {"depth"}, kMostTransformerLayers);
    blocks.ffn = blocks.hidden * number_or(from.at, {"mlp_ratio"}, 4, 1, 16);
    set_heads(blocks, number_of(from, {"num_heads"}, kMostHeads));
    set_merger(from, 2, encoder);
    return encoder;
}

// All but a few blocks attend within windows of an image.
Encoder read_qwen2_5_vl(const EncoderSource& from) {
    Encoder encoder{
        .blocks = {
            .gated = true, .norm = NormKind::RmsNorm, .position = PositionKind::Rotary, .bias = true, .causal = false}};
    Transformer& blocks = encoder.blocks;
    read_blocks(from, blocks);
    set_merger(from, 1, encoder);
    const int patch = number_or(from.at, {"patch_size", "spatial_patch_size"}, 14, 1, kMostPatch);
    const int side = number_or(from.at, {"window_size"}, 112, 1, kMostImage) / patch;
    blocks.window = std::max(1, side * side);
    blocks.forms.assign(static_cast<std::size_t>(blocks.layers), {Mixer::Window, Feed::Mlp});
    for (const Yaml& block : from.at["fullatt_block_indexes"].items())
        blocks.forms[static_cast<std::size_t>(block.integer(0, 0, blocks.layers - 1))].mixer = Mixer::Attention;
    return encoder;
}

// Four tokens side by side, a norm, and two matrices with biases. Each part of a block has a scale.
Encoder read_intern_vit(const EncoderSource& from) {
    Encoder encoder{.blocks = {.bias = true, .causal = false}, .unread = 1, .merged = 4};
    Transformer& blocks = encoder.blocks;
    read_blocks(from, blocks);
    read_patches(from, encoder);
    const std::int64_t hidden = blocks.hidden;
    const bool has_bias = flag_or(from.at["qkv_bias"], true);
    if (const Yaml norm = from.at["norm_type"]; norm.is_text() && norm.text() == "rms_norm")
        blocks.norm = NormKind::RmsNorm;
    encoder.other = hidden + hidden + hidden * encoder.all_tokens();  // bias, first token, positions
    // Scales, norms of queries and keys over all heads, and biases that are not there.
    encoder.other +=
        blocks.layers * hidden * (2 + (flag_or(from.at["qk_normalization"], false) ? 2 : 0) - (has_bias ? 0 : 3));
    encoder.projector = from.hidden;
    encoder.other_of_projector = 2 * std::int64_t{encoder.projected()} + 2 * std::int64_t{from.hidden};
    return encoder;
}

Encoder read_pixtral(const EncoderSource& from) {
    Encoder encoder{
        .blocks = {.gated = true, .norm = NormKind::RmsNorm, .position = PositionKind::Rotary, .causal = false}};
    read_blocks(from, encoder.blocks);
    read_patches(from, encoder);
    encoder.other = encoder.blocks.hidden;  // the first norm
    set_projector_of_llava(from, encoder);
    return encoder;
}

// Two convolutions over three steps of a spectrum, of which the second halves the steps, and the mean of two tokens.
Encoder read_whisper(const EncoderSource& from) {
    constexpr int kSteps = 3;
    Encoder encoder{.blocks = {.bias = true, .bare_keys = true, .causal = false}, .merged = 2, .pools = true};
    Transformer& blocks = encoder.blocks;
    blocks.hidden = number_of(from, {"d_model"}, kMostHidden);
    blocks.layers = number_of(from, {"encoder_layers"}, kMostTransformerLayers);
    blocks.ffn = number_of(from, {"encoder_ffn_dim"}, kMostWidth);
    set_heads(blocks, number_of(from, {"encoder_attention_heads"}, kMostHeads));
    encoder.tokens = number_or(from.at, {"max_source_positions"}, 1500, 2, kMostPositions);
    encoder.inputs = kSteps * (number_or(from.at, {"num_mel_bins"}, 128, 1, kMostWidth) + blocks.hidden);
    const std::int64_t hidden = blocks.hidden;
    encoder.other = 2 * hidden + hidden * encoder.tokens + 2 * hidden;  // biases, positions, the last norm
    encoder.other_of_projector = from.hidden;
    return encoder;
}

// A kind of encoder is a row, by its model_type, or the file's. `of` is the model_type of the files whose
// projector is known, empty: all.
struct EncoderRow {
    std::string_view part, type, of;
    Encoder (*read)(const EncoderSource& from);
};
constexpr EncoderRow kEncoders[] = {
    {"vision_config", "clip_vision_model", "llava", read_clip},
    {"vision_config", "siglip_vision_model", "gemma3", read_siglip},
    {"vision_config", "siglip_vision_model", "llava", read_siglip},
    {"vision_config", "pixtral", "llava", read_pixtral},
    {"vision_config", "intern_vit_6b", "internvl_chat", read_intern_vit},
    {"vision_config", "qwen2_5_vl", "", read_qwen2_5_vl},
    {"vision_config", "qwen2_vl", "", read_qwen2_vl},
    {"audio_config", "qwen2_audio_encoder", "qwen2_audio", read_whisper},
};

std::string model_type_of(const Yaml& at) { return at["model_type"].is_text() ? at["model_type"].text() : ""; }

}  // namespace

std::int64_t parameters_of(const Encoder& encoder) {
    std::int64_t sum = encoder.weights_of_patches() + encoder.other;
    for (int layer = 0; layer < encoder.blocks.layers; ++layer)
        sum += active_parameters_of(encoder.blocks, encoder.blocks.form(layer));
    return sum;
}

std::optional<Encoder> read_encoder_config(const std::string& path, const Transformer& decoder) {
    const Yaml root = Yaml::parse(
        std::make_shared<Source>(path, read_text(path, "name a config.json of Hugging Face that can be read")));
    if (!root.is_map())
        return std::nullopt;
    for (const EncoderRow& row : kEncoders) {
        const Yaml at = root[row.part];
        if (!at.is_map())
            continue;
        const std::string of = model_type_of(root), own = model_type_of(at);
        if ((own.empty() ? of : own) != row.type || (!row.of.empty() && of != row.of))
            continue;
        Encoder encoder = row.read({root, at, decoder.hidden});
        encoder.blocks.name = std::string(row.part);
        root.source().throw_if_mistaken();
        return encoder;
    }
    return std::nullopt;
}

}  // namespace pw
