// Whether tasks may wait for what others take at the same time: capacities of the network, and a dispatcher.
#pragma once

#include "schedules/plan/lanes.h"
#include "schedules/plan/plan_graph.h"
#include "workloads/costs/costs.h"

namespace pw {

// Return whether transfers that share a capacity (workloads/cluster/routes.h) may run at the same time and together
// need more than it has: the first for messages, the second for messages and sums of gradients, or two sums.
bool may_share_links(const PlanGraph& graph, const TransferMode& mode, const Costs& costs);
bool may_share_with_sums(const PlanGraph& graph, const TransferMode& mode, const Costs& costs);

// Returns whether the calls of one device may wait for those of another: they have one dispatcher, and calls take time.
bool may_wait_for_calls(const Shape& shape, const Costs& costs);

}  // namespace pw
