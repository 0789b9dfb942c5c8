// A rule of all lower bounds on a step.
#pragma once

#include "workloads/costs/costs.h"

#include <algorithm>

namespace pw {

inline constexpr double kNoMore = 1 - 1e-9;  // an allowance for rounded sums of doubles

// Returns the least share of F that a pair adds to its B: none if the time of some pair is known (StageCost::pair).
inline double least_exposed(const Costs& costs, bool has_pairs) {
    const auto is_known = [](const StageCost& cost) { return cost.pair.has_value(); };
    return !has_pairs ? 1 : std::ranges::any_of(costs.stage, is_known) ? 0 : costs.pair_exposed;
}

// Returns a lower bound on what F, forward, adds to its device if it may be in a pair (Costs::pair_exposed), whose
// other task counts as a whole.
constexpr Ns exposed_work(Ns forward, double exposed) {
    return exposed == 1 ? forward : static_cast<Ns>(static_cast<double>(forward) * exposed * kNoMore);
}

}  // namespace pw
