// How much the measured times of a profile scatter, per stage: standard deviations as parts of the times.
#pragma once

#include "workloads/costs/costs.h"
#include "workloads/stages/stage_split.h"

#include <vector>

namespace pw {

struct StageSpread {
    double forward = 0, backward = 0, backward_input = 0, backward_weight = 0, recompute = 0;
};

// Assumes that layers' times are normal and independent of each other: the p90 - p10 of one is 2.563 standard
// deviations. Uses the measured micro-batch size that is nearest to `samples`.
std::vector<StageSpread> spreads_of(const StageSplit& split, const Profile& profile, int samples);

}  // namespace pw
