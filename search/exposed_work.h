// A rule of all lower bounds on a step.
#pragma once

#include "workloads/units.h"

namespace pw {

inline constexpr double kNoMore = 1 - 1e-9;  // an allowance for rounded sums of doubles

// Returns a lower bound on what F, forward, adds to its device if it may be in a pair (Costs::pair_exposed), whose
// other task counts as a whole.
constexpr Ns exposed_work(Ns forward, double exposed) {
    return exposed == 1 ? forward : static_cast<Ns>(static_cast<double>(forward) * exposed * kNoMore);
}

}  // namespace pw
