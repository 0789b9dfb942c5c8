// Initial values of a layer's parameters, which may depend on the layers around it.
#pragma once

#include "workloads/models/parameters.h"

namespace pw {

// Returns the values in the order of parameters_of, as LayerKernel::load takes them. A layer that shares a table starts
// from a copy of it. Linear layers that feed residual sums start smaller, by the root of the number of sums, as in
// GPT-2.
std::vector<std::vector<float>> initial_parameters(const LayerGraph& graph, int layer, std::int64_t seed);

}  // namespace pw
