// The planning of a run once the sizes of its stages are known: buffers and their addresses, messages, and how long
// tasks may last.
#pragma once

#include "exec/engine/device.h"
#include "exec/engine/mailbox.h"
#include "exec/engine/progress_monitor.h"
#include "workloads/costs/costs.h"

namespace pw {

// Fills in the plan's edges, bytes, buffers and their places, by the backend's sizes. Throws Error (Infeasible) when a
// device has less memory. `guarded` leaves room around each buffer (Guards).
void plan_memory(RunPlan& plan, const Costs& costs, bool guarded);

// After plan_memory(): returns how messages travel, and their times over an emulated link; the caller adds `spin` and
// the payload. `carrier` is Devices::carrier().
Mailbox::Options plan_messages(const RunPlan& plan, const Costs& costs, bool copies, RankCarrier* carrier);

// Returns ten times the predicted times, of a profile or of emulated devices; at least run.timeout.
ProgressMonitor::Limits plan_limits(const RunPlan& plan, const LinkTimes& link);

// Ten times as long: a wrong alarm costs a run.
Ns times_generous(Ns time);

}  // namespace pw
