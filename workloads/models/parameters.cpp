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
    if (!layer.tied_to.empty())
        return {};
    return facts_of(layer.kind).parameters(layer);
}

std::vector<float> initial_values(const ParameterShape& parameter, std::int64_t seed) {
    const std::int64_t count = parameter.elements();
    switch (parameter.start.spread) {
        case Start::Spread::Normal:
            return normals(Stream(parameter.name, seed), count, parameter.start.size);
        case Start::Spread::Uniform:
            return uniforms(Stream(parameter.name, seed), count, parameter.start.size);
        case Start::Spread::Constant:
            break;
    }
    return std::vector<float>(static_cast<std::size_t>(count), static_cast<float>(parameter.start.size));
}

std::vector<std::vector<float>> initial_parameters(const LayerGraph& graph, int layer, std::int64_t seed) {
    if (const std::string& owner = graph[layer].tied_to; !owner.empty())
        return initial_parameters(graph, find_layer(graph, owner), seed);
    std::vector<std::vector<float>> values;
    for (const ParameterShape& parameter : parameters_of(graph[layer]))
        values.push_back(initial_values(parameter, seed));
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
