#include "workloads/models/layer_graph.h"

#include "workloads/error.h"
#include "workloads/models/parameters.h"

#include <boost/range/iterator_range.hpp>

#include <algorithm>

namespace pw {

namespace {

std::int64_t trained_parameters(const Layer& layer) {
    std::int64_t count = 0;
    for (const ParameterShape& parameter : facts_of(layer.kind).parameters(layer))
        count += parameter.trained ? parameter.elements() : 0;
    return count;
}

void check_tie(const LayerGraph& graph, const Layer& layer) {
    if (layer.tied_to.empty())
        return;
    const int owner = find_layer(graph, layer.tied_to);
    if (layer.kind != LayerKind::RowLinear || layer.bias)
        fail("layer '{}' shares the table of '{}'; only a row linear layer without bias does", layer.name,
             layer.tied_to);
    if (owner < 0 || graph[owner].kind != LayerKind::Embedding)
        fail("layer '{}' shares the table of '{}', which is no embedding before it", layer.name, layer.tied_to);
    if (graph[owner].vocabulary != layer.output.width || graph[owner].output.width != layer.input.width)
        fail("layer '{}' takes a table of {}x{}, but that of '{}' is {}x{}", layer.name, layer.output.width,
             layer.input.width, layer.tied_to, graph[owner].vocabulary, graph[owner].output.width);
}

void check_inputs(const LayerGraph& graph, const Layer& layer, const std::vector<int>& inputs) {
    if (find_layer(graph, layer.name) >= 0)
        fail("layer '{}' is listed twice; every layer needs a name of its own", layer.name);
    const auto takes = static_cast<std::size_t>(facts_of(layer.kind).inputs);
    if (takes > 0 && inputs.size() > takes)
        fail("layer '{}' reads {} tensors, more than its kind ({}) takes", layer.name, inputs.size(),
             name_of(layer.kind));
    if (takes > 1 && inputs.size() != takes)
        fail("layer '{}' reads {} tensors; {} takes {}", layer.name, inputs.size(), name_of(layer.kind), takes);
    for (std::size_t position = 0; position < inputs.size(); ++position) {
        const int input = inputs[position];
        if (input < 0 || input >= static_cast<int>(num_vertices(graph)))
            fail("layer '{}' reads layer number {}, which is not in the graph yet; only earlier layers can be read",
                 layer.name, input);
        const Dims& made = graph[input].output;
        const Dims wanted = input_dims(layer, static_cast<int>(position));
        if (made != wanted)
            fail("layer '{}' takes {}, but '{}' makes {}", layer.name, print(wanted), graph[input].name, print(made));
    }
    check_tie(graph, layer);
}

}  // namespace

std::string print(const Dims& dims) { return fmt::format("{}x{}x{}", dims.channels, dims.height, dims.width); }

LossShape loss_shape(const Layer& loss) {
    const Dims& input = loss.input;
    if (input.channels == 1)
        return {input.width, input.height, 1, input.width};
    const std::int64_t pixels = std::int64_t{input.height} * input.width;
    return {input.channels, pixels, pixels, 1};
}

Model cut_in_slices(const Model& model, int slices) {
    Model cut = model;
    if (slices == 1)
        return cut;
    cut.input.height /= slices;
    for (std::size_t number = 0; number < boost::num_vertices(cut.layers); ++number) {
        Layer& layer = cut.layers[number];
        layer.slices = slices;
        layer.input.height /= slices;
        if (!is_loss(layer.kind))
            layer.output.height /= slices;
    }
    return cut;
}

int labels_per_sample(const Model& model) {
    return static_cast<int>(loss_shape(model.layers[num_vertices(model.layers) - 1]).positions);
}

void finish_layer(Layer& layer, bool reads_data) {
    const LayerFacts& facts = facts_of(layer.kind);
    layer.parameters = trained_parameters(layer);
    layer.flops_forward = 2 * facts.multiply_accumulates(layer);
    layer.flops_input = reads_data ? 0 : facts.input_gradient_products * layer.flops_forward;
    layer.flops_weight = has_weight_pass(layer.kind) ? layer.flops_forward : 0;
}

int add_layer(LayerGraph& graph, Layer layer, const std::vector<int>& inputs) {
    check_inputs(graph, layer, inputs);
    finish_layer(layer, inputs.empty());
    std::string name = layer.name;
    const auto added = add_vertex(std::move(layer), graph);
    graph[boost::graph_bundle].by_name.emplace(std::move(name), static_cast<int>(added));
    for (std::size_t position = 0; position < inputs.size(); ++position)
        add_edge(static_cast<std::size_t>(inputs[position]), added, LayerInput{static_cast<int>(position)}, graph);
    return static_cast<int>(added);
}

Dims input_dims(const Layer& layer, int position) {
    Dims dims = layer.input;
    if (layer.kind == LayerKind::Concat && position == 1)
        dims.channels = layer.output.channels - layer.input.channels;
    if (layer.kind == LayerKind::GroupedAttention && position > 0)
        dims.width = layer.input.width / layer.heads * layer.key_value_heads;
    return dims;
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
    const auto& numbers = graph[boost::graph_bundle].by_name;
    const auto found = numbers.find(name);
    return found == numbers.end() ? -1 : found->second;
}

}  // namespace pw
