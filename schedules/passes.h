// Passes over a plan, and the one check that every plan must pass.
#pragma once

#include "schedules/plan.h"

namespace pw {

// Writes S (stages with several holders) and U right after each stage's last B or W of every
// mini-batch, where the order has none.
void add_updates(Plan& plan);

// Adds a SEND right after the task that makes a tensor for a stage on another device, and its RECV
// on the other side just before the first task that reads it.
void add_transfers(Plan& plan);

// Proves the plan complete (each task of the shape once, transfers paired), ordered (inputs before
// outputs) and free of deadlock under rendezvous semantics, or throws: Error (BadInput) for a
// malformed plan, Error (Infeasible) for a deadlock, naming device, step, task and missing input:
//   plan '1f1b': device 0 waits forever at step 0: 0B7 needs 0F7, which no device runs before it
void check(const Plan& plan);

}  // namespace pw
