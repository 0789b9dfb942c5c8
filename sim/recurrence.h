// The times of a plan in one pass, where devices share nothing: then they follow from an order that the costs do not
// change.
#pragma once

#include "schedules/lanes.h"
#include "schedules/plan_graph.h"
#include "schedules/rows.h"
#include "workloads/units.h"

#include <vector>

namespace pw {

// The relation is schedules/waiting.h. Keeps a reference to the graph.
class Recurrence {
public:
    Recurrence(const PlanGraph& graph, const TransferMode& mode);

    // Returns false for a plan that deadlocks in the mode: it has no times.
    bool runs_through() const { return order_.size() == static_cast<std::size_t>(graph_.size()); }

    // Fills in starts and ends, by node. `duration` is by node: what a task takes, for a SEND the time for which it
    // occupies its link. A message arrives `latency` after that.
    void evaluate(const std::vector<Ns>& duration, Ns latency, std::vector<Ns>& start, std::vector<Ns>& end) const;

private:
    const PlanGraph& graph_;
    std::vector<int> order_;    // nodes, each after those that it waits for
    std::vector<int> partner_;  // in this order: the SEND of a RECV, -1 for other tasks
    Rows waits_;                // in this order: nodes
};

}  // namespace pw
