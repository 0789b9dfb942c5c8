// The times of a stage's tasks.
#pragma once

#include "workloads/units.h"

namespace pw {

// All costs are per micro-batch.
struct StageCost {
    Ns forward = 0, backward = 0, backward_input = 0, backward_weight = 0, recompute = 0;
    Ns update = 0, sum_gradients = 0;
    Ns accumulate = 0;      // additional time of every B or W of a mini-batch except the stage's first
    Ns gather_weights = 0;  // additional time of U, whatever the speeds: holders distribute their updated parts
    StageCost& operator+=(const StageCost& other);
};

}  // namespace pw
