#include "workloads/models/layer_kind.h"

#include "workloads/models/layer_graph.h"
#include "workloads/models/parameters.h"

#include <cassert>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

namespace pw {

namespace {

using Parameters = std::vector<ParameterShape>;

Start constant(double value) { return {Start::Spread::Constant, value}; }
Start normal(double deviation) { return {Start::Spread::Normal, deviation}; }
Start uniform(double bound) { return {Start::Spread::Uniform, bound}; }

// GPT-2's choice for its tables and linear layers. All other layers start as torchvision's do.
Start sequence_start() { return normal(0.02); }

ParameterShape weight(const Layer& layer, std::vector<int> shape, Start start) {
    return {layer.name + ".weight", std::move(shape), true, start};
}

ParameterShape bias(const Layer& layer, int elements, Start start = constant(0)) {
    return {layer.name + ".bias", {elements}, true, start};
}

Parameters none(const Layer&) { return {}; }

Parameters of_convolution(const Layer& layer) {  // He normal, by the fan out
    const double fan_out = static_cast<double>(layer.output.channels) * layer.kernel * layer.kernel;
    return {weight(layer, {layer.output.channels, layer.input.channels, layer.kernel, layer.kernel},
                   normal(std::sqrt(2 / fan_out)))};
}

Parameters of_batch_norm(const Layer& layer) {
    const int channels = layer.input.channels;
    return {weight(layer, {channels}, constant(1)),
            bias(layer, channels),
            {layer.name + ".running_mean", {channels}, false, constant(0)},
            {layer.name + ".running_var", {channels}, false, constant(1)}};
}

Parameters of_linear(const Layer& layer) {
    const auto fan_in = static_cast<int>(layer.input.elements());
    const Start start = uniform(1 / std::sqrt(static_cast<double>(fan_in)));
    return {weight(layer, {layer.output.channels, fan_in}, start), bias(layer, layer.output.channels, start)};
}

Parameters of_embedding(const Layer& layer) {
    return {weight(layer, {layer.vocabulary, layer.output.width}, sequence_start())};
}

Parameters of_position_bias(const Layer& layer) {
    return {weight(layer, {layer.input.height * layer.slices, layer.input.width}, sequence_start())};
}

Parameters of_layer_norm(const Layer& layer) {
    return {weight(layer, {layer.input.width}, constant(1)), bias(layer, layer.input.width)};
}

Parameters of_rms_norm(const Layer& layer) { return {weight(layer, {layer.input.width}, constant(1))}; }

Parameters of_row_linear(const Layer& layer) {
    Parameters shapes{weight(layer, {layer.output.width, layer.input.width}, sequence_start())};
    if (layer.bias)
        shapes.push_back(bias(layer, layer.output.width));
    return shapes;
}

double no_products(const Layer&) { return 0; }

double by_convolution(const Layer& layer) {
    return static_cast<double>(layer.output.elements()) * layer.input.channels * layer.kernel * layer.kernel;
}

double by_linear(const Layer& layer) { return static_cast<double>(layer.input.elements()) * layer.output.channels; }

double by_row_linear(const Layer& layer) {
    return static_cast<double>(layer.input.height) * layer.input.width * layer.output.width;
}

// Scores and their products with the values. A row reads half of the other rows.
double by_attention(const Layer& layer) {
    const auto rows = static_cast<double>(layer.input.height);
    return rows * (rows + 1) * layer.output.width;
}

Bytes no_masks(const Layer&, const NumberBytes&) { return 0; }
Bytes per_output(const Layer& layer, const NumberBytes&) { return layer.output.elements(); }
Bytes if_relu(const Layer& layer, const NumberBytes&) { return layer.relu ? layer.output.elements() : 0; }
Bytes of_classes(const Layer& layer, const NumberBytes&) { return layer.input.elements() * kFloatBytes; }
Bytes of_scores(const Layer& layer, const NumberBytes& numbers) {
    return Bytes{layer.heads} * layer.input.height * layer.input.height * numbers.activation;
}

using enum LayerKind;
using enum LayerRole;
using enum Reread;
using enum Statistics;
using enum RowsRead;

// clang-format off
constexpr LayerFacts kLayerFacts[] = {
    // kind, name, role, inputs, reread, statistics, rows read,                parameters, products of F, of I for each, masks
    {Convolution, "convolution", Module, 1, ByWeightGradient, None, Any,     of_convolution, by_convolution, 1, no_masks},
    {BatchNorm, "batch norm", Module, 1, ByInputGradient, PerChannel, Any,   of_batch_norm, no_products, 0, if_relu},
    {Relu, "relu", Module, 1, ByInputGradient, None, Own,                    none, no_products, 0, no_masks},
    {Add, "add", Function, 2, Never, None, Own,                              none, no_products, 0, if_relu},
    {Concat, "concat", Function, 2, Never, None, Any,                        none, no_products, 0, no_masks},
    {MaxPool, "max pool", Module, 1, Never, None, Any,                       none, no_products, 0, per_output},
    {AveragePool, "average pool", Module, 1, Never, None, Any,               none, no_products, 0, no_masks},
    {Upsample, "upsample", Module, 1, Never, None, Any,                      none, no_products, 0, no_masks},
    {Linear, "linear", Module, 1, ByWeightGradient, None, Any,               of_linear, by_linear, 1, no_masks},
    {Dropout, "dropout", Module, 1, Never, None, Own,                        none, no_products, 0, per_output},
    {Embedding, "embedding", Module, 1, ByWeightGradient, None, Own,         of_embedding, no_products, 0, no_masks},
    {PositionBias, "position bias", Module, 1, Never, None, Own,             of_position_bias, no_products, 0, no_masks},
    {LayerNorm, "layer norm", Module, 1, ByInputGradient, PerRow, Own,       of_layer_norm, no_products, 0, no_masks},
    {Gelu, "gelu", Module, 1, ByInputGradient, None, Own,                    none, no_products, 0, no_masks},
    {RowLinear, "row linear", Module, 1, ByWeightGradient, None, Own,        of_row_linear, by_row_linear, 1, no_masks},
    // Both factors of its products are tensors, and I makes the gradients of both.
    {Attention, "attention", Function, 1, ByInputGradient, None, UpToOwn,      none, by_attention, 2, of_scores},
    {GroupedAttention, "grouped attention", Function, 3, ByInputGradient, None, UpToOwn, none, by_attention, 2, of_scores},
    {Rotary, "rotary", Function, 1, Never, None, Own,                        none, no_products, 0, no_masks},
    {RmsNorm, "RMS norm", Module, 1, ByInputGradient, DeviationPerRow, Own,  of_rms_norm, no_products, 0, no_masks},
    {GatedSilu, "gated silu", Function, 2, ByInputGradient, None, Own,       none, no_products, 0, no_masks},
    {CrossEntropy, "cross entropy", Loss, 1, Never, None, Own,               none, no_products, 0, of_classes},
    {MeanSquaredError, "mean squared error", Loss, 1, Never, None, Own,      none, no_products, 0, of_classes},
    {Profiled, "profiled", Module, 0, ByInputGradient, None, Any,            none, no_products, 0, no_masks},
};
// clang-format on

constexpr bool is_in_order() {
    for (std::size_t row = 0; row < std::size(kLayerFacts); ++row)
        if (kLayerFacts[row].kind != static_cast<LayerKind>(row))
            return false;
    return true;
}
static_assert(std::size(kLayerFacts) == static_cast<std::size_t>(LayerKind::Last) + 1,
              "every kind of layer has one row of facts");
static_assert(is_in_order(), "the rows of facts are in the order of LayerKind");

}  // namespace

const LayerFacts& facts_of(LayerKind kind) {
    assert(kind <= LayerKind::Last);
    return kLayerFacts[static_cast<std::size_t>(kind)];
}

std::string_view name_of(LayerKind kind) { return facts_of(kind).name; }

bool is_loss(LayerKind kind) { return facts_of(kind).role == LayerRole::Loss; }

bool is_attention(LayerKind kind) { return facts_of(kind).rows == RowsRead::UpToOwn; }

bool rereads_input_for_input_gradient(LayerKind kind) { return facts_of(kind).reread == Reread::ByInputGradient; }

bool rereads_input_for_weight_gradient(LayerKind kind) { return has_weight_pass(kind); }

bool has_weight_pass(LayerKind kind) { return facts_of(kind).reread == Reread::ByWeightGradient; }

}  // namespace pw
