// Discrete-event simulation of a plan: predicted trace from costs, links and memory.
#pragma once

#include "schedules/buffers.h"
#include "schedules/lanes.h"
#include "schedules/plan.h"
#include "schedules/trace.h"
#include "workloads/costs/costs.h"

#include <memory>

namespace pw {

// Simulates a plan. It is deterministic: the same arguments give the same trace, byte for byte. A synchronous plan
// gives one step, an asynchronous plan its whole run. Throws Error (Infeasible) when the plan deadlocks, naming what
// every device waits for.
Trace simulate(const Plan& plan, const Costs& costs, TransferMode mode = {});

// Simulates one plan under the costs of many splits: what the plan alone decides is made once. It keeps a reference to
// the plan; `mode.sent_copies` is keeps_copies() of the costs that will come.
class Simulator {
public:
    Simulator(const Plan& plan, TransferMode mode);
    ~Simulator();
    Simulator(Simulator&&) noexcept;

    Trace trace(const Costs& costs);
    Ns step_time(const Costs& costs);  // the same as in metrics_of(trace(costs))
    // The same as trace(), from a queue of events, which devices that share something need. It is a witness for the
    // others.
    Trace trace_by_events(const Costs& costs);

private:
    std::unique_ptr<class Simulation> simulation_;
};

}  // namespace pw
