// Which layers of a model are recomputed, by their names.
#pragma once

#include "workloads/models/layer_graph.h"

#include <string>
#include <string_view>
#include <vector>

namespace pw {

// Returns whether `pattern` is the layer's name, or that of a block that it is in: "layer3" matches "layer3.0.conv1". A
// '*' matches any characters.
bool matches(std::string_view name, std::string_view pattern);

// Sets Layer::recomputed of all layers: of those that match a pattern, or of all if there is no pattern. Throws Error
// (BadInput) if a pattern matches no layer.
void set_recomputed(LayerGraph& graph, const std::vector<std::string>& patterns);

}  // namespace pw
