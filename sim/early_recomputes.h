// Where in its device's list each R, recomputation, of a plan runs.
#pragma once

#include "schedules/plan/lanes.h"
#include "schedules/plan/plan.h"
#include "workloads/costs/costs.h"

#include <vector>

namespace pw {

// Moves R of a plan, which precede their backwards, to earlier idle time of their devices, as long as that shortens the
// step. An R stays after its F, and outside of pairs. A device holds no more than its memory, or than it holds without
// any move. Of plans with equally long steps, it returns the one with the fewest early R. The same arguments give the
// same plan. It may take hundreds of simulations.
Plan with_early_recomputes(const Plan& plan, const Costs& costs, const TransferMode& mode,
                           const std::vector<Bytes>& memory);

}  // namespace pw
