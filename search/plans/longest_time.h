// Whether the numbers of a search stay far from where integers overflow, whatever the split.
#pragma once

#include "job/setup/setup.h"
#include "schedules/plan/plan.h"
#include "workloads/costs/costs.h"

namespace pw {

// Throws Error (BadInput) if under some split the plan could take longer than kLongestPlan, or its buffers be larger
// than kLargestPlan, all tasks, transfers and buffers one after the other. `plan` has the schedule's tasks, whatever
// its edges.
void refuse_long_splits(const Plan& plan, const CostTable& costs, const LayerGraph& graph, const Setup& setup,
                        const Profile& profile);

}  // namespace pw
