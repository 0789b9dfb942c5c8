// How a setup cuts the sequences of micro-batches into slices.
#pragma once

#include "job/setup/setup.h"
#include "schedules/orders/schedule.h"
#include "workloads/costs/slices.h"

namespace pw {

// Returns the number of slices of each micro-batch. 1: whole micro-batches.
int slices_of(const Setup& setup, const Schedule& schedule);

// Returns whether a sequence can be cut into this many slices.
bool can_cut(int tokens, int slices, SliceLengths lengths);

// Returns where a setup cuts its sequences, if causal attention is this part of all passes. Slices of equal time, and
// the slices of a transformer, are multiples of `grain` tokens. The ends of a plan from a file are even.
SliceEnds slice_ends_of(const Setup& setup, int slices, double attention, int grain = 1);

// Schedules of slices need sequences that can be cut: no layer may read rows after the own one, unless only the layer's
// times are known. `model` is null for a uniform workload. Throws Error (BadInput) at the key that caused it.
void check_slices(const Setup& setup, const Model* model);

}  // namespace pw
