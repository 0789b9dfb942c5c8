// Meeting points, at which some devices wait for each other: at an S, the sum of gradients over the holders of a stage,
// and at a U, the optimizer update, under a global norm. Like the mailbox they give up when one
// device has failed, or when one does not come for the timeout.
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

class MeetingPoints {
public:
    // `watch`, where there is one, is told who waits and says when that is too long; then there is no timeout here.
    // With `shards` the holders of a stage hand new weights round at its U.
    MeetingPoints(const PlanGraph& graph, const Shape& shape, Ns timeout, Watch* watch = nullptr, RankMap map = {},
                  bool shards = false);

    // Returns the meeting that an S or U belongs to, or null where it has none. begins() tells whether the node is the
    // device's first task of its meeting.
    const Meeting* meeting(int node) const;
    bool begins(int node) const { return begins_[node]; }
    // Tells whether a device hands new weights round at the node, for all of its stages in the meeting: at its first U,
    // and where U has no meeting of its own, in that of the S before it.
    bool hands_round(int node) const { return hands_round_[node]; }

    // What the ranks of a meeting do when all their devices are there: `others` are the other ranks, and the tags from
    // `tag` to tag + 1 are the meeting's own.
    using Across = std::function<void(const Meeting& meeting, const std::vector<int>& others, int tag)>;

    // Waits until all devices of the node's meeting have called. They may meet there several times. Where they are on
    // several ranks the last one of each rank calls `across`, which returns when the other ranks have called theirs.
    // Throws Error (PeerSilent) naming who is missing after the timeout and Error (RunFailed) when another device has
    // failed. Threads may meet `beside` their devices, which do something else: then the watch does not hear of it.
    void arrive(int node, const Across& across = {}, bool beside = false);
    void abort();
    int first_free_tag() const { return kFirstTag + 2 * static_cast<int>(meetings_.size()); }

private:
    struct Point {
        std::vector<int> waiting;  // nodes
        std::int64_t round = 0;
        std::size_t here = 0;     // so many devices of this rank
        std::vector<int> others;  // ranks, ascending
    };
    void hand_weights_round(const Shape& shape);
    [[noreturn]] void fail_waiting(int node, Ns waited);

    const PlanGraph& graph_;
    const Ns timeout_;
    const RankMap map_;
    Watch* const watch_;
    const std::vector<Meeting> meetings_;
    std::vector<int> number_;                 // by node; -1 where it has no meeting
    std::vector<char> begins_, hands_round_;  // by node
    std::vector<Point> points_;               // by meeting
    bool aborted_ = false;
    Mutex mutex_;
    Condition changed_;
};

}  // namespace pw
