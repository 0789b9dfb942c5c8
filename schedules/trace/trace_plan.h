// The plan of a trace: the events of a device are the tasks of its list.
#pragma once

#include "schedules/trace/trace.h"

namespace pw {

// Makes a plan whose lists are the events of the first step, in their order in the trace. It has only what the trace
// contains: its edges between stages are those of the transfers (the chain if there are none), and its weights follow
// no policy. With `global_norm` every U waits for the gradients of all stages. The plan is not proven.
Plan plan_of(const Trace& trace, bool global_norm = false);

// Returns whether a transfer names another one of `stages` stages as its other end, and any other task none.
inline bool has_right_peer(const Task& task, int stages) {
    return is_transfer(task.op) ? task.peer >= 0 && task.peer < stages && task.peer != task.stage : task.peer == -1;
}

// Adds the updates and sums of gradients that another program's trace lacks, where the lists of its plan have them.
// They take no time.
Trace with_updates(Trace trace);

// Puts the events of another program's trace in list order: tasks by their starts in the first step, transfers where
// add_transfers() puts them. Sets the hash of that plan. Throws Error (BadInput) with `path` and the task if a step
// lacks a task or has an extra one.
void put_in_list_order(Trace& trace, const std::string& path);

}  // namespace pw
