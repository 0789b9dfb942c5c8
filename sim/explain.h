// Makes an Explanation of the times of a plan.
#pragma once

#include "schedules/plan/durations.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/plan.h"
#include "schedules/plan/plan_graph.h"
#include "sim/explanation.h"
#include "sim/recurrence.h"

#include <vector>

namespace pw {

// A plan and what its tasks take: `times` are by `timed_kinds`, those of the recurrence, and `kinds` are the plan's
// own. They are the same unless the times are known task by task.
struct TimedPlan {
    const Plan& plan;
    const PlanGraph& graph;
    const TransferMode& mode;
    const TaskKinds& kinds;
    const TaskKinds& timed_kinds;
    const Recurrence::Times& times;
    Recurrence& recurrence;
    std::vector<int> lengths = {};  // classes_of() the lengths of micro-batches: each is levelled for itself
};

// Evaluates the recurrence with the times, and before that with those of equal stages: then every stage takes, on each
// of its devices, the mean time that stages take for their part of the micro-batches, F B I W each for itself; R,
// recomputation, counts as part of the backward that follows it. Transfers, sums and updates keep their times.
Explanation explain(const TimedPlan& timed);

}  // namespace pw
