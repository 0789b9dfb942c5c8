// Which layers of a model are recomputed or offloaded, by their names.
#pragma once

#include "workloads/models/layer_graph.h"

#include <string>
#include <string_view>
#include <vector>

namespace pw {

// Returns whether `pattern` is the layer's name, or the name of a block that contains the layer: "layer3" matches
// "layer3.0.conv1". A '*' matches any characters.
bool matches(std::string_view name, std::string_view pattern);

// Sets Layer::recomputed of all layers: true for layers that match a pattern, or for all layers without patterns.
// Throws Error (BadInput) if a pattern matches no layer.
void set_recomputed(LayerGraph& graph, const std::vector<std::string>& patterns);

// Sets Layer::offloaded of the `layers` that match a pattern, or of all of them without patterns. Throws Error
// (BadInput) if a pattern matches no layer of the graph.
void set_offloaded(LayerGraph& graph, const std::vector<int>& layers, const std::vector<std::string>& patterns);

}  // namespace pw
