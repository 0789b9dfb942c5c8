// Cuts the idle time of devices into parts by cause, from the times of a plan's tasks, predicted or measured.
#pragma once

#include "schedules/plan/plan.h"
#include "schedules/plan/plan_graph.h"
#include "sim/explanation.h"

#include <vector>

namespace pw {

// By node. The first start is at 0.
struct NodeTimes {
    std::vector<Ns> start, end;
    std::vector<Ns> latency;  // of a SEND, from its end to the arrival of its message
};

// Returns the parts by device, each device's from the first to the last. A gap is cut at the moments at which the task
// after it stops to wait for one thing and begins to wait for the next; what is left has the cause `rest`.
// `blocks`: an exchange is waited for as a whole. Sums and updates are tasks, not idle time.
std::vector<IdlePart> idle_parts(const Plan& plan, const PlanGraph& graph, bool blocks, const NodeTimes& times,
                                 Ns makespan, Ns IdleCauses::*rest);

// Returns by node the input that comes last, or -1 for none.
std::vector<int> last_inputs(const PlanGraph& graph, const std::vector<Ns>& ends);

}  // namespace pw
