#include "workloads/layer_graph.h"

#include "workloads/error.h"

#include <boost/range/iterator_range.hpp>

#include <algorithm>

namespace pw {

namespace {

constexpr Bytes kFloat = 4;

bool has_mask(const Layer& layer) {
    return layer.relu && (layer.kind == LayerKind::BatchNorm || layer.kind == LayerKind::Add);
}

std::int64_t parameters(const Layer& layer) {
    switch (layer.kind) {
        case LayerKind::Convolution:
            return std::int64_t{layer.output.channels} * layer.input.channels * layer.kernel * layer.kernel;
        case LayerKind::Linear:
            return layer.input.elements() * layer.output.channels + layer.output.channels;
        case LayerKind::BatchNorm:
            return std::int64_t{2} * layer.input.channels;
        default:
            return 0;
    }
}

double multiply_accumulates(const Layer& layer) {
    if (layer.kind == LayerKind::Convolution)
        return static_cast<double>(layer.output.elements()) * layer.input.channels * layer.kernel * layer.kernel;
    if (layer.kind == LayerKind::Linear)
        return static_cast<double>(layer.input.elements()) * layer.output.channels;
    return 0;
}

void check_inputs(const LayerGraph& graph, const Layer& layer, const std::vector<int>& inputs) {
    if (find_layer(graph, layer.name) >= 0)
        fail("layer '{}' stands twice; every layer needs a name of its own", layer.name);
    if (layer.kind != LayerKind::Profiled && inputs.size() > (layer.kind == LayerKind::Add ? 2u : 1u))
        fail("layer '{}' reads {} tensors, more than its kind ({}) takes", layer.name, inputs.size(),
             name_of(layer.kind));
    if (layer.kind == LayerKind::Add && inputs.size() != 2)
        fail("layer '{}' reads {} tensors; add takes two", layer.name, inputs.size());
    for (const int input : inputs) {
        if (input < 0 || input >= static_cast<int>(num_vertices(graph)))
            fail("layer '{}' reads layer number {}, which is not in the graph yet; only earlier layers can be read",
                 layer.name, input);
        const Dims& made = graph[input].output;
        if (made != layer.input)
            fail("layer '{}' takes {}x{}x{}, but '{}' makes {}x{}x{}", layer.name, layer.input.channels,
                 layer.input.height, layer.input.width, graph[input].name, made.channels, made.height, made.width);
    }
}

}  // namespace

std::string_view name_of(LayerKind kind) {
    switch (kind) {
        case LayerKind::Convolution:
            return "convolution";
        case LayerKind::BatchNorm:
            return "batch norm";
        case LayerKind::Relu:
            return "relu";
        case LayerKind::Add:
            return "add";
        case LayerKind::MaxPool:
            return "max pool";
        case LayerKind::AveragePool:
            return "average pool";
        case LayerKind::Linear:
            return "linear";
        case LayerKind::CrossEntropy:
            return "cross entropy";
        case LayerKind::Profiled:
            return "profiled";
    }
    return "?";
}

bool rereads_input_for_input_gradient(LayerKind kind) {
    return kind == LayerKind::BatchNorm || kind == LayerKind::Relu || kind == LayerKind::Profiled;
}

bool rereads_input_for_weight_gradient(LayerKind kind) { return has_weight_pass(kind); }

bool has_weight_pass(LayerKind kind) { return kind == LayerKind::Convolution || kind == LayerKind::Linear; }

Bytes mask_bytes(const Layer& layer) {
    if (has_mask(layer) || layer.kind == LayerKind::MaxPool)
        return layer.output.elements();
    if (layer.kind == LayerKind::CrossEntropy)
        return layer.input.elements() * kFloat;
    return 0;
}

void finish_layer(Layer& layer, bool reads_data) {
    const Bytes input = layer.input.elements() * kFloat;
    layer.parameter_bytes = parameters(layer) * kFloat;
    layer.saved_until_input = mask_bytes(layer) + (rereads_input_for_input_gradient(layer.kind) ? input : 0);
    layer.kept_until_weight = rereads_input_for_weight_gradient(layer.kind) ? input : 0;
    layer.flops_forward = 2 * multiply_accumulates(layer);
    layer.flops_input = reads_data ? 0 : layer.flops_forward;
    layer.flops_weight = layer.flops_forward;
}

int add_layer(LayerGraph& graph, Layer layer, const std::vector<int>& inputs) {
    check_inputs(graph, layer, inputs);
    finish_layer(layer, inputs.empty());
    const auto added = add_vertex(std::move(layer), graph);
    for (std::size_t position = 0; position < inputs.size(); ++position)
        add_edge(static_cast<std::size_t>(inputs[position]), added, LayerInput{static_cast<int>(position)}, graph);
    return static_cast<int>(added);
}

std::vector<int> inputs_of_layer(const LayerGraph& graph, int layer) {
    std::vector<int> inputs(in_degree(static_cast<std::size_t>(layer), graph));
    for (const auto& edge : boost::make_iterator_range(in_edges(static_cast<std::size_t>(layer), graph)))
        inputs.at(static_cast<std::size_t>(graph[edge].position)) = static_cast<int>(source(edge, graph));
    return inputs;
}

std::vector<int> readers_of_layer(const LayerGraph& graph, int layer) {
    std::vector<int> readers;
    for (const auto& edge : boost::make_iterator_range(out_edges(static_cast<std::size_t>(layer), graph)))
        readers.push_back(static_cast<int>(target(edge, graph)));
    std::sort(readers.begin(), readers.end());
    readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
    return readers;
}

int find_layer(const LayerGraph& graph, std::string_view name) {
    for (const auto layer : boost::make_iterator_range(vertices(graph)))
        if (graph[layer].name == name)
            return static_cast<int>(layer);
    return -1;
}

}  // namespace pw
