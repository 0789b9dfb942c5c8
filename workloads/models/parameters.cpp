#include "workloads/models/parameters.h"

#include "workloads/models/initial_parameters.h"
#include "workloads/random.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <numbers>

namespace pw {

namespace {

// One stream per parameter, so that no value depends on another layer.
class Stream {
public:
    Stream(std::string_view name, std::int64_t seed)
        : state_(XXH64(name.data(), name.size(), static_cast<std::uint64_t>(seed))) {}

    double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)

    double normal() {  // Box-Muller, both halves used
        if (has_spare_) {
            has_spare_ = false;
            return spare_;
        }
        const double radius = std::sqrt(-2 * std::log(1 - uniform()));
        const double angle = 2 * std::numbers::pi * uniform();
        spare_ = radius * std::sin(angle);
        has_spare_ = true;
        return radius * std::cos(angle);
    }

private:
    std::uint64_t next() {
        const std::uint64_t drawn = mixed(state_);
        state_ += kMixedStep;
        return drawn;
    }

    std::uint64_t state_;
    double spare_ = 0;
    bool has_spare_ = false;
};

std::vector<float> normals(Stream stream, std::int64_t count, double deviation) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values)
        value = static_cast<float>(deviation * stream.normal());
    return values;
}

std::vector<float> uniforms(Stream stream, std::int64_t count, double bound) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values)
        value = static_cast<float>(bound * (2 * stream.uniform() - 1));
    return values;
}

// A shared table belongs to its embedding.
std::vector<ParameterShape> row_linear_parameters(const Layer& layer) {
    if (!layer.tied_to.empty())
        return {};
    std::vector<ParameterShape> shapes{{layer.name + ".weight", {layer.output.width, layer.input.width}}};
    if (layer.bias)
        shapes.push_back({layer.name + ".bias", {layer.output.width}});
    return shapes;
}

// GPT-2's choice for its tables and linear layers.
constexpr double kSequenceDeviation = 0.02;

bool starts_normal(const Layer& layer, const ParameterShape& parameter) {
    return layer.kind == LayerKind::Embedding || layer.kind == LayerKind::PositionBias ||
           (layer.kind == LayerKind::RowLinear && parameter.name.ends_with(".weight"));
}

// Whether a layer's output joins a residual sum, past a dropout perhaps.
bool feeds_a_sum(const LayerGraph& graph, int layer) {
    for (const int reader : readers_of_layer(graph, layer))
        if (graph[reader].kind == LayerKind::Add ||
            (graph[reader].kind == LayerKind::Dropout && feeds_a_sum(graph, reader)))
            return true;
    return false;
}

std::int64_t sums_of(const LayerGraph& graph) {
    std::int64_t count = 0;
    for (std::size_t layer = 0; layer < boost::num_vertices(graph); ++layer)
        count += graph[layer].kind == LayerKind::Add ? 1 : 0;
    return count;
}

}  // namespace

std::int64_t ParameterShape::elements() const {
    std::int64_t count = 1;
    for (int extent : shape)
        count *= extent;
    return count;
}

std::vector<ParameterShape> parameters_of(const Layer& layer) {
    const std::string& name = layer.name;
    const int inputs = layer.input.channels, outputs = layer.output.channels;
    switch (layer.kind) {
        case LayerKind::Convolution:
            return {{name + ".weight", {outputs, inputs, layer.kernel, layer.kernel}}};
        case LayerKind::BatchNorm:
            return {{name + ".weight", {inputs}},
                    {name + ".bias", {inputs}},
                    {name + ".running_mean", {inputs}, false},
                    {name + ".running_var", {inputs}, false}};
        case LayerKind::Linear:
            return {{name + ".weight", {outputs, static_cast<int>(layer.input.elements())}},
                    {name + ".bias", {outputs}}};
        case LayerKind::Embedding:
            return {{name + ".weight", {layer.vocabulary, layer.output.width}}};
        case LayerKind::PositionBias:
            return {{name + ".weight", {layer.input.height, layer.input.width}}};
        case LayerKind::LayerNorm:
            return {{name + ".weight", {layer.input.width}}, {name + ".bias", {layer.input.width}}};
        case LayerKind::RowLinear:
            return row_linear_parameters(layer);
        default:
            return {};
    }
}

std::vector<float> initial_values(const Layer& layer, const ParameterShape& parameter, std::int64_t seed) {
    const std::int64_t count = parameter.elements();
    if (layer.kind == LayerKind::Convolution) {
        const double fan_out = static_cast<double>(layer.output.channels) * layer.kernel * layer.kernel;
        return normals(Stream(parameter.name, seed), count, std::sqrt(2 / fan_out));
    }
    if (layer.kind == LayerKind::Linear) {
        const double fan_in = static_cast<double>(layer.input.elements());
        return uniforms(Stream(parameter.name, seed), count, 1 / std::sqrt(fan_in));
    }
    if (starts_normal(layer, parameter))
        return normals(Stream(parameter.name, seed), count, kSequenceDeviation);
    const bool ones = parameter.name.ends_with(".weight") || parameter.name.ends_with(".running_var");
    return std::vector<float>(static_cast<std::size_t>(count), ones ? 1.0f : 0.0f);
}

std::vector<std::vector<float>> initial_parameters(const LayerGraph& graph, int layer, std::int64_t seed) {
    if (const std::string& owner = graph[layer].tied_to; !owner.empty())
        return initial_parameters(graph, find_layer(graph, owner), seed);
    std::vector<std::vector<float>> values;
    for (const ParameterShape& parameter : parameters_of(graph[layer]))
        values.push_back(initial_values(graph[layer], parameter, seed));
    if (graph[layer].kind == LayerKind::RowLinear && feeds_a_sum(graph, layer)) {
        const auto factor = static_cast<float>(1 / std::sqrt(static_cast<double>(sums_of(graph))));
        for (float& value : values[0])
            value *= factor;
    }
    return values;
}

std::string hash_of(std::vector<NamedTensor> tensors) {
    std::ranges::sort(tensors, {}, &NamedTensor::name);
    const std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> state(XXH64_createState(), &XXH64_freeState);
    XXH64_reset(state.get(), 0);
    const auto feed = [&](const void* data, std::size_t bytes) { XXH64_update(state.get(), data, bytes); };
    for (const NamedTensor& tensor : tensors) {
        feed(tensor.name.c_str(), tensor.name.size() + 1);  // with the zero: "a" + "b" is not "ab"
        const auto rank = static_cast<std::int32_t>(tensor.shape.size());
        feed(&rank, sizeof rank);
        feed(tensor.shape.data(), tensor.shape.size() * sizeof(int));
        feed(tensor.values.data(), tensor.values.size() * sizeof(float));
    }
    return fmt::format("{:016x}", XXH64_digest(state.get()));
}

}  // namespace pw
