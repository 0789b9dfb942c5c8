// The times of a stage's tasks, and by how much a micro-batch changes them.
#pragma once

#include "workloads/units.h"

#include <array>
#include <compare>
#include <optional>

namespace pw {

// All costs are per micro-batch.
struct StageCost {
    Ns forward = 0, backward = 0, backward_input = 0, backward_weight = 0, recompute = 0;
    Ns update = 0, sum_gradients = 0;
    Ns accumulate = 0;            // additional time of every B or W of a mini-batch except the stage's first
    Ns gather_weights = 0;        // additional time of U, whatever the speeds: holders distribute their updated parts
    std::optional<Ns> pair = {};  // of a pair of an F of this stage and a B, absent: by Costs::pair_exposed
    StageCost& operator+=(const StageCost& other);
};
// The times that a layer has, too. The times of a stage are the sums of its layers' times.
inline constexpr std::array kLayerTimes = {
    &StageCost::forward,   &StageCost::backward, &StageCost::backward_input, &StageCost::backward_weight,
    &StageCost::recompute, &StageCost::update,   &StageCost::accumulate};

// Returns `cost` with the shorter of both values for each time that a layer has.
StageCost shorter_of(StageCost cost, const StageCost& other);

// How long a micro-batch is, as multiples of the costs of a micro-batch: sequences differ in tokens, and attention
// grows faster with them than the rest.
struct MicroBatchLength {
    double forward = 1;                              // times of F and R
    double backward_input = 1, backward_weight = 1;  // times of I and W (B takes both)
    double bytes = 1;                                // activations, messages and workspaces
    auto operator<=>(const MicroBatchLength&) const = default;
};

}  // namespace pw
