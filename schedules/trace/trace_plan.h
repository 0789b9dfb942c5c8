// The plan of a trace: the events of a device are the tasks of its list.
#pragma once

#include "schedules/trace/trace.h"

namespace pw {

// Makes a plan whose lists are the events of the first step, in their order in the trace. It has only what the trace
// contains: its edges between stages are the edges of the transfers (the chain if there are none), and its weights
// follow no policy. With `global_norm` every U waits for the gradients of all stages. The plan is not proven.
Plan plan_of(const Trace& trace, bool global_norm = false);

// Returns whether a transfer names a different stage of `stages` as its other end, and any non-transfer none.
inline bool has_right_peer(const Task& task, int stages) {
    return is_transfer(task.op) ? task.peer >= 0 && task.peer < stages && task.peer != task.stage : task.peer == -1;
}

// Adds the updates and sums of gradients that another program's trace lacks, where the lists of its plan have them.
// They take no time.
Trace with_updates(Trace trace);

// Makes another program's trace a trace of the plan of `other`, which must have the same tasks that compute in the same
// order on every device. The tasks that the trace lacks are added and take no time. Plan and sizes are the plan and
// sizes of `other`. Throws Error (BadInput) with the device and the first task that differs.
Trace as_plan_of(Trace trace, const Trace& other);

// Puts the events of another program's trace in list order: tasks by their starts in the first step, transfers where
// add_transfers() puts them. Sets the hash of that plan. Throws Error (BadInput) with `path` and the task if a step
// lacks a task or has an extra task.
void put_in_list_order(Trace& trace, const std::string& path);

}  // namespace pw
