// What holds for every order of a choice's tasks, for schedules that find the order for the costs of a split.
#pragma once

#include "job/plan.h"
#include "job/setup/setup.h"

namespace pw {

// Returns a plan of these stages, placed as the setup's schedule does, for bounds alone: each stage has all F, then all
// I, each after its R if there is one, then all W. In any order, the first I follows the first F and the path from
// there and back, and the last I follows the last F. All I follow the first I, and all F precede the last F.
Plan plan_of_any_order(const Setup& setup, const StageLinks& links);

}  // namespace pw
