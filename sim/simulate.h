// Discrete-event simulation of a plan: predicted trace from costs, links and memory.
#pragma once

#include "schedules/buffers.h"
#include "schedules/lanes.h"
#include "schedules/plan.h"
#include "schedules/trace.h"
#include "workloads/costs.h"

namespace pw {

// Deterministic: the same arguments give the same trace, byte for byte. A synchronous
// plan gives one step, an asynchronous plan its whole run. Throws Error
// (Infeasible) when the plan deadlocks, naming what every device waits for.
Trace simulate(const Plan& plan, const Costs& costs, TransferMode mode = {});

}  // namespace pw
