// The memory of a stage.
#pragma once

#include "workloads/units.h"

#include <array>
#include <optional>

namespace pw {

// The sums of a stage's sizes, as the plan's buffers need them.
struct StageBytes {
    Bytes weights = 0;                        // one version of the trained parameters
    Bytes frozen = 0;                         // parameters that are not trained
    Bytes statistics = 0;                     // running averages
    Bytes data = 0;                           // from F to W
    Bytes until_input = 0, until_weight = 0;  // activations taken at F, or at R if the stage has R, freed at I and at W
    Bytes gradient_kept = 0;                  // taken at I, freed at W (B needs none)
    // Tensors of layers that R does not run, in stages that R recomputes in part: taken at F, freed at R, I and W.
    Bytes first_until_again = 0, first_until_input = 0, first_until_weight = 0;
    // Activations of offloaded layers: taken at F, freed at I and at W. In offloaded stages they are not there between.
    Bytes offloaded_until_input = 0, offloaded_until_weight = 0;
    // The workspaces are by pass: F, B, I, W, R. A device reserves the largest workspace of the passes in its list.
    Bytes forward_workspace = 0, backward_workspace = 0, input_workspace = 0, weight_workspace = 0;
    Bytes recompute_workspace = 0;
    // The part of each workspace that is as large for a slice as for all rows: kernels need about as much scratch
    // memory.
    Bytes uncut_workspace = 0;
    // Of slices: keys and values, which later slices of a micro-batch read, and as many gradients, which later slices
    // add to before the slice's own I. 0 without slices.
    Bytes keys_and_values = 0;
    // Gradients and states of the optimizer, if Costs::kept and the size of the weights do not give their sizes.
    struct Training {
        Bytes gradients, states;
    };
    std::optional<Training> training = {};
};
inline constexpr std::array kStageSizes = {&StageBytes::weights,
                                           &StageBytes::frozen,
                                           &StageBytes::statistics,
                                           &StageBytes::data,
                                           &StageBytes::until_input,
                                           &StageBytes::until_weight,
                                           &StageBytes::gradient_kept,
                                           &StageBytes::first_until_again,
                                           &StageBytes::first_until_input,
                                           &StageBytes::first_until_weight,
                                           &StageBytes::offloaded_until_input,
                                           &StageBytes::offloaded_until_weight,
                                           &StageBytes::forward_workspace,
                                           &StageBytes::backward_workspace,
                                           &StageBytes::input_workspace,
                                           &StageBytes::weight_workspace,
                                           &StageBytes::recompute_workspace,
                                           &StageBytes::uncut_workspace,
                                           &StageBytes::keys_and_values};

}  // namespace pw
