// Which layers to recompute: the layers that save most memory for their time.
#pragma once

#include "workloads/costs/costs.h"
#include "workloads/models/layer_graph.h"

#include <string>
#include <vector>

namespace pw {

// Returns by layer the bytes of a micro-batch that are not held until the backward if the layer is recomputed: what the
// layer saves, and its output if some layer reads the output again.
std::vector<Bytes> recomputable_bytes(const LayerGraph& graph, const std::vector<LayerBytes>& bytes);

// Returns names of layers that save at least a quarter, half and three quarters of all these bytes, and an empty list,
// which stands for all layers. No other layers save as much in as little time, since each list has the layers with the
// most bytes per time, and among equal layers the first.
std::vector<std::vector<std::string>> cheapest_layers(const LayerGraph& graph, const CostTable& costs);

}  // namespace pw
