// The executor loop: launches a device's list in order. No vendor types, no schedule names.
#pragma once

#include "exec/engine/backend.h"
#include "schedules/plan.h"

#include <vector>

namespace pw {

// Runs one step of `device`'s list; the intervals are in list order.
std::vector<Interval> run_list(const Plan& plan, const PlanGraph& graph, int device, int step, Backend& backend);

}  // namespace pw
