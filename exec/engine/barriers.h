// The barriers of a plan, at which some devices wait for each other: at an S, the sum of gradients over the holders of
// a stage, and at a U, the optimizer update, under a global norm. The waits end when a device has failed, or when a
// device does not arrive within the timeout.
#pragma once

#include "exec/engine/progress_monitor.h"
#include "exec/ranks/ranks.h"
#include "exec/system/threads.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/sum_groups.h"
#include "workloads/units.h"

#include <functional>
#include <vector>

namespace pw {

class Barriers {
public:
    // With a `monitor`, which checks for silent devices, the barriers have no timeout. With `shards` the holders of
    // a stage exchange new weights at its U.
    Barriers(const PlanGraph& graph, const Shape& shape, Ns timeout, ProgressMonitor* monitor = nullptr,
             RankMap map = {}, bool shards = false);

    // Returns the barrier that an S or U belongs to, or null if it has none. begins() returns whether the node is the
    // device's first task of its barrier.
    const Barrier* barrier(int node) const;
    bool begins(int node) const { return begins_[node]; }
    // Returns whether the barrier of the node has devices on several ranks.
    bool spans_ranks(int node) const { return !states_[number_[node]].others.empty(); }
    // Returns whether a device exchanges new weights at the node, for all of its stages in the barrier: at its first U,
    // and, if U has no barrier of its own, in the barrier of the preceding S.
    bool exchanges_weights(int node) const { return exchanges_weights_[node]; }

    // The action of the ranks of a barrier when all their devices have arrived. `others` are the remaining ranks
    // of the barrier. The barrier has the tags `tag` and `tag` + 1.
    using RankAction = std::function<void(const Barrier& barrier, const std::vector<int>& others, int tag)>;

    // Waits until all devices of the node's barrier have arrived. A barrier may be used several times. If the devices
    // are on several ranks, the last device of each rank calls `between_ranks`, which returns when all ranks of the
    // barrier have called it. Throws Error (PeerSilent) that names the missing devices after the timeout, and
    // Error (RunFailed) when another device has failed. `monitored` is false on threads that are not a device's own.
    void arrive(int node, const RankAction& between_ranks = {}, bool monitored = true);
    void abort();
    int first_free_tag() const { return kFirstTag + 2 * static_cast<int>(barriers_.size()); }

private:
    struct State {
        std::vector<int> waiting;  // nodes
        std::int64_t round = 0;
        std::size_t here = 0;     // number of devices on this rank
        std::vector<int> others;  // ranks, ascending
    };
    void find_weight_exchanges(const Shape& shape);
    [[noreturn]] void fail_waiting(int node, Ns waited);

    const PlanGraph& graph_;
    const Ns timeout_;
    const RankMap map_;
    ProgressMonitor* const monitor_;
    const std::vector<Barrier> barriers_;
    std::vector<int> number_;                       // by node (-1 if it has no barrier)
    std::vector<char> begins_, exchanges_weights_;  // by node
    std::vector<State> states_;                     // by barrier
    bool aborted_ = false;
    Mutex mutex_;
    Condition changed_;
};

}  // namespace pw
