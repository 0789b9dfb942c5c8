#include "workloads/models/frozen_layers.h"

#include "workloads/error.h"
#include "workloads/models/recomputed_layers.h"

#include <algorithm>

namespace pw {

namespace {

template <class Is>
bool any_layer(const LayerGraph& graph, Is is) {
    const auto [first, last] = vertices(graph);
    return std::any_of(first, last, [&](auto layer) { return is(graph[layer]); });
}

bool is_trained(const Layer& layer) {
    return !layer.frozen && (layer.kind == LayerKind::Profiled ? layer.has_weights : layer.parameters > 0);
}

void set_passes(LayerGraph& graph) {
    for (int number = 0; number < static_cast<int>(num_vertices(graph)); ++number) {
        Layer& layer = graph[number];
        const bool trained = is_trained(layer);
        const bool follows =
            std::ranges::any_of(inputs_of_layer(graph, number), [&](int input) { return has_backward(graph[input]); });
        layer.weight_pass = trained;
        layer.input_pass = follows || (trained && !has_weight_pass(layer.kind));
    }
}

}  // namespace

bool has_frozen_layers(const LayerGraph& graph) {
    return any_layer(graph, [](const Layer& layer) { return layer.frozen; });
}

bool has_forwards_only(const LayerGraph& graph) {
    return any_layer(graph, [](const Layer& layer) { return !has_backward(layer); });
}

void train_all(LayerGraph& graph) {
    for (std::size_t number = 0; number < num_vertices(graph); ++number) {
        graph[number].frozen = false;
        graph[number].input_pass = graph[number].weight_pass = true;
    }
}

void set_frozen(LayerGraph& graph, const std::vector<std::string>& patterns) {
    for (const std::string& pattern : patterns) {
        bool found = false;
        for (std::size_t layer = 0; layer < num_vertices(graph); ++layer)
            if (matches(graph[layer].name, pattern))
                graph[layer].frozen = found = true;
        if (!found)
            fail("no layer is called '{}'", pattern);
    }
    if (!has_frozen_layers(graph))
        return;
    for (std::size_t number = 0; number < num_vertices(graph); ++number)
        if (const Layer& layer = graph[number]; !layer.tied_to.empty())
            if (const Layer& table = graph[find_layer(graph, layer.tied_to)]; table.frozen != layer.frozen)
                fail("'{}' and '{}' share their parameters, and only '{}' is frozen", table.name, layer.name,
                     (table.frozen ? table : layer).name);
    if (!any_layer(graph, is_trained))
        fail("all layers with parameters are frozen: nothing is trained");
    set_passes(graph);
}

}  // namespace pw
