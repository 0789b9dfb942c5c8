// Whether a setup says what pairs of tasks take.
#pragma once

#include "job/setup/setup.h"

namespace pw {

// Returns whether the setup has a share by which all pairs overlap, even the default. The share replaces times that
// follow from the parts of passes.
inline bool says_times_of_pairs(const Setup& setup) {
    return setup.pipeline.pair_exposed != PipelineConfig{}.pair_exposed ||
           setup.places.contains("pipeline.pair_exposed");
}

}  // namespace pw
