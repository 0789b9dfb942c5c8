// The costs of slices: the sequences of a micro-batch are cut into equal parts, which pass through the stages in
// sequence.
#pragma once

#include "workloads/costs/costs.h"

namespace pw {

// Sets Costs::slices. Each slice takes an equal share of a stage's time and bytes. Only causal attention
// (Costs::attention) takes longer for later slices, since their rows attend to more keys: slice q of k takes
// (2q + 1) / k^2 of its time.
void cut_in_slices(Costs& costs, int slices);

}  // namespace pw
