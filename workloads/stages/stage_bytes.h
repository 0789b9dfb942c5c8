// The memory of a stage.
#pragma once

#include "workloads/models/optimizer.h"
#include "workloads/units.h"

#include <optional>

namespace pw {

// The sums of a stage's sizes, as the plan's buffers need them.
struct StageBytes {
    Bytes weights = 0;                        // one version of the trainable parameters
    Bytes statistics = 0;                     // running averages
    Bytes data = 0;                           // from F to W
    Bytes until_input = 0, until_weight = 0;  // activations taken at F, freed at I and at W
    Bytes gradient_kept = 0;                  // taken at I, freed at W; B needs none
    // The workspaces are by pass: F, B, I, W, R. A device reserves the largest of those that its list holds.
    Bytes forward_workspace = 0, backward_workspace = 0, input_workspace = 0, weight_workspace = 0;
    Bytes recompute_workspace = 0;
    // Gradients of keys and values, which later slices of a micro-batch add to before the slice's own I; only with
    // slices.
    Bytes slice_gradients = 0;
    // Gradients and states of the optimizer, if they are not as large as the weights and by the optimizer's row.
    std::optional<TrainingBytes> training = {};
};

}  // namespace pw
