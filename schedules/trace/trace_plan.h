// The plan of a trace: the trace of a device has the tasks of its list.
#pragma once

#include "schedules/trace/trace.h"

namespace pw {

// Makes a plan whose lists are the events of the first step, in their order in the trace. What a trace does not say is
// not in it: its edges between stages are those of the transfers (of a trace without any, the chain), and its weights
// follow no policy. With `global_norm` every U, update, waits for the gradients of all stages. The plan is not proven.
Plan plan_of(const Trace& trace, bool global_norm = false);

// Tells whether a transfer names another one of so many stages as its other end, and any other task none.
inline bool has_right_peer(const Task& task, int stages) {
    return is_transfer(task.op) ? task.peer >= 0 && task.peer < stages && task.peer != task.stage : task.peer == -1;
}

// Adds the updates and sums of gradients that a trace of somebody else does not have, where the lists of its plan have
// them. They take no time.
Trace with_updates(Trace trace);

// Puts the events of a trace that somebody else wrote where the lists have them: tasks by their starts in the first
// step, transfers where add_transfers() puts them, and hashes that plan. Throws Error (BadInput) naming `path` and the
// task when a step lacks one, or has one too many.
void put_in_list_order(Trace& trace, const std::string& path);

}  // namespace pw
