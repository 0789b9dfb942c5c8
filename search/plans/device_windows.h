// Windows of devices: tasks that a device runs between a path to the first of them and a path back after the last.
#pragma once

#include "schedules/plan/plan.h"
#include "search/plans/plan_bound.h"

#include <vector>

namespace pw {

inline constexpr int kUpdates = -1;

// Tasks that a device runs after a path of layers to the first of them, and before a path back after the last of them,
// or with its updates.
struct Window {
    int device;
    int from, to;                              // stages of the first and the last task (`to` may be kUpdates)
    Op first;                                  // an F or an I of stage `from`
    std::vector<PlanBound::PathCounts> paths;  // by stage: its tasks in the window
    std::vector<char> updates;                 // by stage: whether its update is in the window
};

// Returns the windows of all devices, of their lists or of any order.
std::vector<Window> windows_of(const Plan& plan, const PlanBound& bound, bool listed);

}  // namespace pw
