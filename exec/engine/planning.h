// The planning of a run once the sizes of its stages are known: buffers and their addresses, messages, and the time
// limits of tasks.
#pragma once

#include "exec/engine/device.h"
#include "exec/engine/mailbox.h"
#include "exec/engine/progress_monitor.h"
#include "workloads/costs/costs.h"

namespace pw {

// Sets the plan's edges, bytes, buffers and their offsets, with the backend's sizes. Throws Error (Infeasible) if
// they do not fit a device's memory. `guarded` leaves room around each buffer (Guards).
void plan_memory(RunPlan& plan, const Costs& costs, bool guarded);

// Returns the options of the mailbox, with the times of messages over an emulated link. Called after plan_memory().
// The caller adds `spin` and the payload. `carrier` is Devices::carrier().
Mailbox::Options plan_messages(const RunPlan& plan, const Costs& costs, bool copies, RankCarrier* carrier);

// Returns ten times the predicted times, which a profile or emulated devices give, but at least run.timeout.
ProgressMonitor::Limits plan_limits(const RunPlan& plan, const LinkTimes& link);

// Ten times the time, since a false alarm ends a run.
Ns times_generous(Ns time);

}  // namespace pw
