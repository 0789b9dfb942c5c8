// How long every task of a plan takes by its costs: what the simulator counts and the emulated
// device sleeps.
#pragma once

#include "schedules/plan/lanes.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/shape_index.h"
#include "schedules/plan/versions.h"
#include "workloads/costs/costs.h"
#include "workloads/stages/ties.h"

#include <array>
#include <vector>

namespace pw {

// Returns how long an operation takes on a device that holds the stage, with its speed and the dispatch: for the first
// micro-batch of a mini-batch that has several.
Ns duration_of(Op op, int stage, int device, const Costs& costs);

// Returns by micro-batch of a step a number that equal lengths have in common; it is empty where all are alike.
std::vector<int> classes_of(const std::vector<MicroBatchLength>& lengths);

// Tasks of one kind take equally long, whatever the costs: those of one operation on a device's stage, of which the
// last micro-batch of a mini-batch, which may be smaller, and the first gradients, which are not added to others, are
// kinds of their own; and the sends of one direction of an edge from one device to another. So are those of every
// length of micro-batches. A RECV is of no kind.
class TaskKinds {
public:
    struct Kind {
        Op op;
        int device, stage;
        bool last_microbatch;
        bool accumulates;
        bool predicts;   // weights
        int microbatch;  // of the first
        int first;       // node of the kind
        int count;
        int receiver = -1;   // device, of a SEND
        int gradients = -1;  // of S: the kind of the pass that makes the last of its gradients, if any
    };
    static constexpr int kNone = -1;

    // `classes` is classes_of() the costs that will come.
    TaskKinds(const Plan& plan, const PlanGraph& graph, const VersionTable& versions,
              const std::vector<int>& classes = {});
    // Makes every node a kind of its own, numbered as the nodes are, for times that are given task by task; that of a
    // RECV has no tasks.
    explicit TaskKinds(const PlanGraph& graph);

    int of(int node) const { return of_[static_cast<std::size_t>(node)]; }
    const std::vector<Kind>& all() const { return all_; }

    // Returns the durations by kind, see below; of a SEND the time for which it occupies its link, of an S in buckets
    // the time from its last bucket on.
    std::vector<Ns> durations(const PlanGraph& graph, const Shape& shape, const Costs& costs) const;
    // Returns by kind of pass, where sums go on in buckets, how much later than the end of the last pass of its stage
    // the last bucket may be sent: an S starts its own duration after that, on all of the stage's devices, however late
    // its list has come to it. Empty without buckets.
    std::vector<Ns> bucket_delays(const Costs& costs) const;
    // Returns by kind what a message takes beyond that before it is there; 0 for what is no SEND.
    std::vector<Ns> latencies(const Costs& costs) const;
    // Returns the durations while all other devices compute; it is empty when the costs do not know it.
    std::vector<Ns> busy_durations(const PlanGraph& graph, const Shape& shape, const Costs& costs) const;

private:
    std::vector<int> of_;  // by node
    std::vector<Kind> all_;
};

// Returns the durations by node, with the device's speed and the dispatch included; they are 0 for transfers. All
// gradients of a mini-batch but a stage's first are added to what is there, which takes StageCost::accumulate more.
// Predicting weights comes before the task that reads them: it goes through memory three times where an update goes
// five times.
std::vector<Ns> durations_of(const Plan& plan, const PlanGraph& graph, const Costs& costs,
                             const VersionTable& versions);
// Returns TaskKinds::bucket_delays() by node.
std::vector<Ns> bucket_delays_of(const Plan& plan, const PlanGraph& graph, const Costs& costs,
                                 const VersionTable& versions);
// Fills in how S, the sum of gradients, goes on every stage of the shape and what it costs: its holders sum over
// the cluster's `sums`, between hosts over what leads there, and then, all over, the devices that share a parameter do.
// With `costs.shard_optimizer` S leaves each holder with its part of the sum, U takes that part's share of the time,
// and then hands the new weights round: that share is taken of the costs' U, so once. With `costs.sum_bucket` S is
// summed in buckets: only what is left of it after the backward, or the W, that makes the last gradients is its
// duration. Stages that share a parameter with another sum all at once.
void add_gradient_sums(Costs& costs, const Shape& shape, const std::vector<StageTie>& ties = {},
                       SumAlgorithm algorithm = SumAlgorithm::Ring);

// What transfers move.
class Traffic {
public:
    Traffic(const Shape& shape, const ShapeIndex& index, const Costs& costs);

    // Returns fewer bytes for a smaller last micro-batch, more or fewer by the micro-batch's length, 0 for tasks that
    // move nothing and for edges that carry nothing.
    Bytes bytes(const Task& task) const;
    std::vector<Bytes> bytes(const PlanGraph& graph) const;  // by node

private:
    using Loads = std::array<std::vector<Bytes>, 2>;  // [0: activations, 1: gradients][edge]

    const Shape& shape_;
    const ShapeIndex& index_;
    std::vector<MicroBatchLength> lengths_;  // Costs::lengths
    Loads full_, last_;                      // of a mini-batch's last micro-batch, empty where that is no smaller
};

// Returns whether messages may be under way at once that share a capacity (workloads/cluster/routes.h) and could
// together use more than there is of it; the second, whether messages and sums of gradients, or two sums, may.
bool may_share_links(const PlanGraph& graph, const TransferMode& mode, const Costs& costs);
bool may_share_with_sums(const PlanGraph& graph, const TransferMode& mode, const Costs& costs);

// Returns whether a device's calls may wait for those of another one: both have one dispatcher, and calls take time.
bool may_wait_for_calls(const Shape& shape, const Costs& costs);
}  // namespace pw
