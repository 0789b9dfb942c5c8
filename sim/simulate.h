// Discrete-event simulation of a plan: predicted trace from costs, links and memory.
#pragma once

#include "schedules/buffers.h"
#include "schedules/plan.h"
#include "schedules/trace.h"
#include "workloads/costs.h"

#include <limits>

namespace pw {

// The link between two devices. A transfer occupies its lane for bytes / bandwidth and arrives
// `latency` later. Lanes keep their order; one lane per directed device pair and direction.
struct LinkModel {
    Ns latency = 0;
    double bandwidth = std::numeric_limits<double>::infinity();  // bytes per second
};

struct TransferModel {
    LinkModel link;
    enum class Communicator { Edge, Direction, One } communicator = Communicator::Edge;
    bool early_receive = true;
    bool rendezvous = false;
};

// Deterministic: the same arguments give the same trace, byte for byte. A synchronous
// plan gives one step, an asynchronous plan its whole run. Throws Error
// (Infeasible) when the plan deadlocks, naming what every device waits for.
Trace simulate(const Plan& plan, const Costs& costs, const TransferModel& transfers);

}  // namespace pw
