// Which tasks each task waits for when a plan runs: its inputs, its list and its lanes in a single relation.
#pragma once

#include "schedules/plan/lanes.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/rows.h"

#include <algorithm>
#include <span>
#include <vector>

namespace pw {

// A task starts when the last of the tasks that it waits for ends: the previous task of its list and its inputs. A
// copy to the host does not wait for its list, and the copies of a lane follow each other as they are listed. A
// transfer also waits for the previous transfer of its lane, under rendezvous for its receive, and for the earlier
// sends whose copies its list waits for. With blocking exchanges a task waits for the whole exchange ahead of it. Lists
// and lanes are first in, first out, so nothing else matters, and a plan completes if these waits have no cycle. This
// holds for the protocols that backends have, which exclude OneSlot. Keeps a reference to the graph.
class Waiting {
public:
    Waiting(const PlanGraph& graph, const TransferMode& mode,
            std::vector<char> by_rendezvous = {});  // sends_by_rendezvous()

    // Returns what a node waits for, except the two nodes below.
    std::span<const int> of(int node) const { return waits_[static_cast<std::size_t>(node)]; }
    // Returns the SEND of a RECV, before which the RECV cannot end. Returns -1 for other tasks.
    int send_of(int node) const { return std::max(other_end_[node], -1); }
    // Returns the RECV whose waits are a SEND's waits, too. Returns -1 if there is none.
    int awaited_by(int node) const {
        const bool by_rendezvous =
            rendezvous_ && (by_rendezvous_.empty() || by_rendezvous_[static_cast<std::size_t>(node)] != 0);
        return by_rendezvous ? std::max(-2 - other_end_[node], -1) : -1;
    }

    // Returns the nodes, each after the nodes that it waits for: all nodes, or the nodes that can run.
    std::vector<int> order() const;

private:
    int first_not_ended(int node, const std::vector<char>& ended, std::size_t& own_ended) const;

    const PlanGraph& graph_;
    bool rendezvous_;
    std::vector<char> by_rendezvous_;  // by node
    std::vector<int> other_end_;       // of a RECV its SEND, of a SEND -2 minus its RECV, of the rest -1
    Rows waits_;
    // The tasks that compute on a device are a chain, and so are the transfers of a lane, and the copies of a lane:
    // the first node of each chain, and for every node the next node.
    std::vector<int> first_, next_;
};

}  // namespace pw
