// What a run plans when it knows the sizes of its stages: its buffers and where they lie, its messages, and for how
// long its tasks may last.
#pragma once

#include "exec/engine/device.h"
#include "exec/engine/mailbox.h"
#include "exec/engine/progress_monitor.h"
#include "workloads/costs/costs.h"

namespace pw {

// Fills in the plan's edges, bytes, buffers and their places, by the backend's sizes. Throws Error (Infeasible) when a
// device has less memory. `guarded` leaves room around each buffer (Guards).
void plan_memory(RunPlan& plan, const Costs& costs, bool guarded);

// After plan_memory(): returns how messages travel, and how long over an emulated link; the caller adds who spins and
// who moves payloads. `carried` tells that the devices themselves carry those between ranks (Payload::carries_across).
Mailbox::Options plan_messages(const RunPlan& plan, const Costs& costs, bool copies, bool carried);

// Returns ten times what a profile, or what emulated devices sleep, tells; at least run.timeout.
Watch::Limits plan_limits(const RunPlan& plan, const LinkTimes& link);

// Ten times as long: a wrong alarm costs a run.
Ns times_generous(Ns time);

}  // namespace pw
