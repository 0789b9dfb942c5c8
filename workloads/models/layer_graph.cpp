#include "workloads/models/layer_graph.h"

#include "workloads/error.h"

#include <boost/range/iterator_range.hpp>

#include <algorithm>

namespace pw {

namespace {


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
        case LayerKind::Embedding:
            return std::int64_t{layer.vocabulary} * layer.output.width;
        case LayerKind::PositionBias:
            return layer.input.elements();
        case LayerKind::LayerNorm:
            return std::int64_t{2} * layer.input.width;
        case LayerKind::RowLinear:
            return (std::int64_t{layer.input.width} + (layer.bias ? 1 : 0)) * layer.output.width;
        default:
            return 0;
    }
}

double multiply_accumulates(const Layer& layer) {
    const auto rows = static_cast<double>(layer.input.height);
    switch (layer.kind) {
        case LayerKind::Convolution:
            return static_cast<double>(layer.output.elements()) * layer.input.channels * layer.kernel * layer.kernel;
        case LayerKind::Linear:
            return static_cast<double>(layer.input.elements()) * layer.output.channels;
        case LayerKind::RowLinear:
            return rows * layer.input.width * layer.output.width;
        case LayerKind::Attention:  // scores and their products with the values; a row sees half of the others
            return rows * (rows + 1) * layer.output.width;
        default:
            return 0;
    }
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
        fail("layer '{}' stands twice; every layer needs a name of its own", layer.name);
    const bool takes_two = layer.kind == LayerKind::Add || layer.kind == LayerKind::Concat;
    if (layer.kind != LayerKind::Profiled && inputs.size() > (takes_two ? 2u : 1u))
        fail("layer '{}' reads {} tensors, more than its kind ({}) takes", layer.name, inputs.size(),
             name_of(layer.kind));
    if (takes_two && inputs.size() != 2)
        fail("layer '{}' reads {} tensors; {} takes two", layer.name, inputs.size(), name_of(layer.kind));
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
        case LayerKind::Concat:
            return "concat";
        case LayerKind::Upsample:
            return "upsample";
        case LayerKind::Dropout:
            return "dropout";
        case LayerKind::Embedding:
            return "embedding";
        case LayerKind::PositionBias:
            return "position bias";
        case LayerKind::LayerNorm:
            return "layer norm";
        case LayerKind::Gelu:
            return "gelu";
        case LayerKind::RowLinear:
            return "row linear";
        case LayerKind::Attention:
            return "attention";
        case LayerKind::CrossEntropy:
            return "cross entropy";
        case LayerKind::MeanSquaredError:
            return "mean squared error";
        case LayerKind::Profiled:
            return "profiled";
    }
    return "?";
}

bool is_loss(LayerKind kind) { return kind == LayerKind::CrossEntropy || kind == LayerKind::MeanSquaredError; }

bool rereads_input_for_input_gradient(LayerKind kind) {
    switch (kind) {
        case LayerKind::BatchNorm:
        case LayerKind::Relu:
        case LayerKind::LayerNorm:
        case LayerKind::Gelu:
        case LayerKind::Attention:
        case LayerKind::Profiled:
            return true;
        default:
            return false;
    }
}

bool rereads_input_for_weight_gradient(LayerKind kind) { return has_weight_pass(kind); }

bool has_weight_pass(LayerKind kind) {
    return kind == LayerKind::Convolution || kind == LayerKind::Linear || kind == LayerKind::RowLinear ||
           kind == LayerKind::Embedding;
}

LossShape loss_shape(const Layer& loss) {
    const Dims& input = loss.input;
    if (input.channels == 1)
        return {input.width, input.height, 1, input.width};
    const std::int64_t pixels = std::int64_t{input.height} * input.width;
    return {input.channels, pixels, pixels, 1};
}

int labels_per_sample(const Model& model) {
    return static_cast<int>(loss_shape(model.layers[num_vertices(model.layers) - 1]).positions);
}

Bytes mask_bytes(const Layer& layer) {
    if (has_mask(layer) || layer.kind == LayerKind::MaxPool || layer.kind == LayerKind::Dropout)
        return layer.output.elements();
    if (is_loss(layer.kind))
        return layer.input.elements() * kFloatBytes;
    if (layer.kind == LayerKind::Attention)
        return Bytes{layer.heads} * layer.input.height * layer.input.height * kFloatBytes;
    return 0;
}

void finish_layer(Layer& layer, bool reads_data) {
    const Bytes input = layer.input.elements() * kFloatBytes;
    layer.parameter_bytes = parameters(layer) * kFloatBytes;
    layer.saved_until_input = mask_bytes(layer) + (rereads_input_for_input_gradient(layer.kind) ? input : 0);
    layer.kept_until_weight = rereads_input_for_weight_gradient(layer.kind) ? input : 0;
    layer.flops_forward = 2 * multiply_accumulates(layer);
    layer.flops_input = reads_data ? 0 : layer.flops_forward;
    layer.flops_weight = has_weight_pass(layer.kind) ? layer.flops_forward : 0;
    if (layer.kind == LayerKind::Attention)  // gradients of both factors of both products
        layer.flops_input = 2 * layer.flops_forward;
}

int add_layer(LayerGraph& graph, Layer layer, const std::vector<int>& inputs) {
    check_inputs(graph, layer, inputs);
    finish_layer(layer, inputs.empty());
    const auto added = add_vertex(std::move(layer), graph);
    for (std::size_t position = 0; position < inputs.size(); ++position)
        add_edge(static_cast<std::size_t>(inputs[position]), added, LayerInput{static_cast<int>(position)}, graph);
    return static_cast<int>(added);
}

Dims input_dims(const Layer& layer, int position) {
    Dims dims = layer.input;
    if (layer.kind == LayerKind::Concat && position == 1)
        dims.channels = layer.output.channels - layer.input.channels;
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
    for (const auto layer : boost::make_iterator_range(vertices(graph)))
        if (graph[layer].name == name)
            return static_cast<int>(layer);
    return -1;
}

}  // namespace pw
