// Makes an Explanation of the times of a plan.
#pragma once

#include "schedules/plan/durations.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/plan.h"
#include "schedules/plan/plan_graph.h"
#include "sim/event_queue.h"
#include "sim/explanation.h"
#include "sim/recurrence.h"

#include <vector>

namespace pw {

// A plan and its times: `times` are by `timed_kinds`, those of the recurrence, and `kinds` are the plan's own. Both are
// the same unless every task has a time of its own.
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

// Evaluates the recurrence with times of equal stages, and then with the given ones. Equal stages take, on each of
// their devices, the mean time of all stages for their part of the micro-batches, separately for F B I W; R,
// recomputation, counts as part of the backward that follows it. Transfers, sums and updates keep their times.
Explanation explain(const TimedPlan& timed);

// Return, and add to an explanation of times that include them, the waits of tasks for the calls of their host's
// dispatcher. By node: the time for which the device of a task was ready while its host issued calls of other devices.
std::vector<Ns> waits_for_calls(const PlanGraph& graph, const Recurrence& order, const EventQueue& events);
void add_waits_for_calls(const PlanGraph& graph, const EventQueue& events, const std::vector<Ns>& waits,
                         Explanation& all);

}  // namespace pw
