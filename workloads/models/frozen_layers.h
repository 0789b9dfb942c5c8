// Which layers of a model are trained, and which passes the remaining layers need.
#pragma once

#include "workloads/models/layer_graph.h"

#include <string>
#include <vector>

namespace pw {

// Freezes the layers that match a pattern (recomputed_layers.h), in addition to the layers that are frozen already, and
// sets Layer::input_pass and Layer::weight_pass of all layers. Throws Error (BadInput) if a pattern matches no layer,
// if only one of two layers that share parameters is frozen, or if no layer is trained.
//
// The rules of PyTorch's autograd hold. A frozen layer has no gradients of parameters. A layer has gradients of its
// inputs if a layer before it is trained. A layer with neither has no backward pass. A graph without frozen layers
// keeps all passes of its layers. The times of a Profiled layer may be of several layers, so that a trained Profiled
// layer has the backward pass of its file in any case.
void set_frozen(LayerGraph& graph, const std::vector<std::string>& patterns);

// Trains all layers, with all passes.
void train_all(LayerGraph& graph);

bool has_frozen_layers(const LayerGraph& graph);
// Returns whether some layer has no backward pass.
bool has_forwards_only(const LayerGraph& graph);

}  // namespace pw
