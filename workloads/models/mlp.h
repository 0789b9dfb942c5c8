// A multi-layer perceptron.
#pragma once

#include "workloads/models/layer_graph.h"

#include <vector>

namespace pw {

// Builds linear layers of these hidden widths and then `classes`, with a ReLU after every linear layer, and a dropout
// after the hidden layers if its probability is not 0.
Model build_mlp(Dims input, int classes, const std::vector<int>& hidden = {512, 512},
                LayerKind loss = LayerKind::CrossEntropy, double dropout = 0);

}  // namespace pw
