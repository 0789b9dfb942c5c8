// Who waits for whom when a plan runs: its inputs, its list and its lanes in one relation.
#pragma once

#include "schedules/plan/lanes.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/rows.h"

#include <algorithm>
#include <span>
#include <vector>

namespace pw {

// A task starts at the latest end of what it waits for: the task before it in its list, its inputs, and for a transfer
// the one before it in its lane, with rendezvous the receive, and the sends whose copies its list waits for; where
// exchanges block, for all of the one before it. Lists and lanes are first in, first out, so that nothing else decides,
// and a plan runs through when nobody waits in a circle. It has the protocols that backends have, which OneSlot is not
// among. Keeps a reference to the graph.
class Waiting {
public:
    Waiting(const PlanGraph& graph, const TransferMode& mode, std::vector<char> asks = {});  // asking_sends()

    // Returns what a node waits for, apart from the two below.
    std::span<const int> of(int node) const { return waits_[static_cast<std::size_t>(node)]; }
    // Returns the SEND of a RECV, which cannot end before it; -1 of other tasks.
    int send_of(int node) const { return std::max(other_end_[node], -1); }
    // Returns the RECV without whose own waiting a SEND does not leave, or -1.
    int awaited_by(int node) const {
        const bool asks = rendezvous_ && (asks_.empty() || asks_[static_cast<std::size_t>(node)] != 0);
        return asks ? std::max(-2 - other_end_[node], -1) : -1;
    }

    // Returns the nodes, each after those that it waits for: all of them, or those that can run.
    std::vector<int> order() const;

private:
    int first_not_ended(int node, const std::vector<char>& ended, std::size_t& own_ended) const;

    const PlanGraph& graph_;
    bool rendezvous_;
    std::vector<char> asks_;      // by node
    std::vector<int> other_end_;  // of a RECV its SEND, of a SEND -2 less its RECV, of others -1
    Rows waits_;
    // What computes on a device is a chain, and what goes through a lane: its first node, and by node the next one.
    std::vector<int> first_, next_;
};

}  // namespace pw
