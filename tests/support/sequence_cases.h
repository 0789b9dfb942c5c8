// Layers on rows of tokens for the layer tests, each with a name.
#pragma once

#include "tests/support/layer_case.h"
#include "tests/support/layer_rig.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

namespace pw {

inline Layer rows(LayerKind kind, int length, int from, int to) {
    return {.name = "tested", .kind = kind, .input = {1, length, from}, .output = {1, length, to}};
}

inline LayerCase simple(const std::string& name, LayerKind kind, int length, int width, int samples) {
    return {fmt::format("{}{}x{}b{}", name, length, width, samples), rows(kind, length, width, width), samples};
}

inline LayerCase embedding(int length, int vocabulary, int width, int samples) {
    Layer layer = rows(LayerKind::Embedding, length, 1, width);
    layer.vocabulary = vocabulary;
    return {fmt::format("Embedding{}of{}x{}b{}", length, vocabulary, width, samples), layer, samples};
}

inline LayerCase row_linear(int length, int from, int to, int samples, bool bias) {
    Layer layer = rows(LayerKind::RowLinear, length, from, to);
    layer.bias = bias;
    return {fmt::format("RowLinear{}{}x{}to{}b{}", bias ? "" : "Plain", length, from, to, samples), layer, samples};
}

inline LayerCase attention(int length, int width, int heads, int samples) {
    Layer layer = rows(LayerKind::Attention, length, 3 * width, width);
    layer.heads = heads;
    return {fmt::format("Attention{}x{}h{}b{}", length, width, heads, samples), layer, samples};
}

inline LayerCase grouped_attention(int length, int width, int heads, int key_value_heads, int samples) {
    Layer layer = rows(LayerKind::GroupedAttention, length, width, width);
    layer.heads = heads;
    layer.key_value_heads = key_value_heads;
    return {fmt::format("GroupedAttention{}x{}h{}of{}b{}", length, width, heads, key_value_heads, samples), layer,
            samples};
}

inline LayerCase rotary(int length, int width, int heads, int samples, double base = 10'000) {
    Layer layer = rows(LayerKind::Rotary, length, width, width);
    layer.heads = heads;
    layer.rotary_base = base;
    return {fmt::format("Rotary{}x{}h{}of{}b{}", length, width, heads, base, samples), layer, samples};
}

// Fills the inputs, those of an embedding with tokens. An embedding has no gradient of its input.
inline void fill(LayerRig& rig, unsigned seed) {
    rig.fill(seed);
    if (rig.layer.kind != LayerKind::Embedding)
        return;
    std::vector<float> tokens = random_values(rig.samples * rig.layer.input.elements(), seed);
    for (float& token : tokens)
        token = std::floor(std::abs(token) * static_cast<float>(rig.layer.vocabulary));
    rig.kernel->fill_input(tokens, rig.inputs[0].get());
    rig.kernel->fill_input(std::vector<float>(tokens.size()), rig.input_gradients[0].get());
}

inline LayerRig filled(const HostKernels& kernels, const LayerCase& tested) {
    LayerRig rig(kernels, tested.layer, tested.samples);
    fill(rig, 5);
    return rig;
}

}  // namespace pw
