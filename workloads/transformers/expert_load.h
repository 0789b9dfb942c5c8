// The load of the fullest rank of experts, if tokens choose experts at random.
#pragma once

#include "workloads/models/transformer.h"
#include "workloads/transformers/parallel.h"

namespace pw {

// Returns the mean, over draws, of the tokens of the rank with the most tokens, relative to the mean of the ranks. A
// draw is a layer in a micro-batch: its experts are placed on `ranks` ranks in random order, and each of `tokens`
// tokens of all ranks chooses Experts::active different experts by their popularity. At least 1. The same arguments
// return the same number on every machine.
double expected_load(const Experts& experts, int ranks, double tokens, const ExpertDraw& draw);

}  // namespace pw
