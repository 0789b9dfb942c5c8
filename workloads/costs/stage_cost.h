// What the tasks of a stage take.
#pragma once

#include "workloads/units.h"

namespace pw {

// All costs are per micro-batch.
struct StageCost {
    Ns forward = 0, backward = 0, backward_input = 0, backward_weight = 0, recompute = 0;
    Ns update = 0, sum_gradients = 0;
    Ns accumulate = 0;      // more for every B or W of a mini-batch but the stage's first
    Ns gather_weights = 0;  // more for U, at no device's speed: its holders hand the parts round that they updated
    StageCost& operator+=(const StageCost& other);
};

}  // namespace pw
