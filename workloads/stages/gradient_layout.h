// The slots of the gradients of a stage in a backward pass, and the sums that make them.
#pragma once

#include "workloads/stages/stage_view.h"

namespace pw {

// Lays out B, the whole backward, or with `split` I, backward for inputs, whose output gradients W, backward for
// weights, reads again: they are at the end of the region GradientKept, which grows by them.
PassLayout layout_gradients(const StageView& view, bool split, Bytes& gradient_kept);

}  // namespace pw
