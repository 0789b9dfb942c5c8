// What would make a predicted plan faster, in a sentence for the reader of its timeline.
#pragma once

#include "job/job.h"

#include <string>

namespace pw {

// Returns "stage 3 takes 18.0 % longer than the mean stage: with block.24 on stage 2 the step would take 6.0 % less".
// The plan with the move was made and simulated. Empty if the layers of the slowest stage at its ends are on no
// neighbour at least 1 % faster, if the split has no such layers, or if the order of tasks is found by costs, which
// takes long.
std::string advice_on(const Job& job, Ns step_time);

}  // namespace pw
