// The times of a plan whose devices share nothing, in one pass: they follow from an order that the costs do not change.
#pragma once

#include "schedules/plan/durations.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/rows.h"
#include "sim/samples.h"
#include "workloads/units.h"

#include <vector>

namespace pw {

struct Proof;  // schedules/passes/passes.h

// The relation is schedules/passes/waiting.h. Keeps references to the graph, the kinds and the proof.
class Recurrence {
public:
    Recurrence(const PlanGraph& graph, const TaskKinds& kinds, const TransferMode& mode, const Proof& proof,
               std::vector<char> by_rendezvous = {});  // sends_by_rendezvous()

    // Returns false for a plan that deadlocks in the mode: it has no times.
    bool runs_through() const { return std::ssize(order_) == graph_.size(); }

    // The inputs of a pass, by kind: the time of a task, for a SEND the time for which it occupies its link, the
    // latency until its message arrives, and TaskKinds::sum_delays().
    struct Times {
        std::vector<Ns> durations, latencies, sum_delays = {};
    };
    void evaluate(Times times);

    // Eight draws in a pass. They depend on the seed alone.
    struct Draws {
        static constexpr std::size_t kCount = 8;
        std::vector<double> end;   // [node][draw], nanoseconds
        std::vector<double> busy;  // [device][draw]: time of tasks F B I W R
    };
    // Tasks that compute take times drawn from `jitter`. Transfers take the times in `times`.
    void draw(const Times& times, const Jitter& jitter, std::uint64_t seed, Draws& draws) const;

    // These are of the times evaluated last.
    Ns start(int node) const;
    Ns end(int node) const { return end_[node]; }
    Ns latency(int send) const { return times_.latencies[kinds_.of(send)]; }

    const std::vector<int>& order() const { return order_; }
    // Returns the nodes that the node of a turn in order() waits for, a RECV's SEND first.
    std::span<const int> waits(int turn) const { return waits_[turn]; }

private:
    const PlanGraph& graph_;
    const TaskKinds& kinds_;
    std::vector<int> own_order_;     // where the proof's does not hold
    const std::vector<int>& order_;  // nodes, each after the nodes that it waits for
    Rows waits_;                     // in this order: nodes, a RECV's SEND first
    std::vector<Ns> end_;            // by node
    std::vector<Ns> start_;          // by node, with bucket delays, or else it follows from the end
    Times times_;
};

}  // namespace pw
