// How long every task of a plan takes by its costs. The simulator counts these durations. The emulated device sleeps
// for them.
#pragma once

#include "schedules/plan/lanes.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/shape_index.h"
#include "schedules/plan/traffic.h"
#include "schedules/plan/versions.h"
#include "workloads/costs/costs.h"
#include "workloads/stages/ties.h"

#include <array>
#include <optional>
#include <vector>

namespace pw {

// Returns how long an operation takes on a device that holds the stage, including the device's speed and the dispatch,
// for a micro-batch that is not a smaller last micro-batch. If it `accumulates`, its gradients are added to earlier
// gradients.
Ns duration_of(Op op, int stage, int device, const Costs& costs, int microbatch = 0, bool accumulates = false);
// Returns the same while other devices compute, if `while_busy`. Then the costs have such times.
Ns duration_of(Op op, int stage, int device, const Costs& costs, bool while_busy, int microbatch, bool accumulates);

// Returns the time for which a SEND occupies its link.
Ns occupation_of(const Task& send, int sender, int receiver, const Costs& costs, const Traffic& traffic);

// Returns the time of a copy between a device and its host: it is over when the last byte has arrived.
Ns time_of_copy(const Task& copy, const Costs& costs, const Traffic& traffic);

// Returns the time that the shorter task of a pair adds to the longer task, both without dispatch.
Ns exposed_part(Ns shorter, double exposed);

// Returns the measured time of a pair of an F and a B of these stages as a share of both tasks run sequentially,
// without dispatch. Absent where it is not measured, and where the tasks take no time.
std::optional<double> measured_share_of_pair(int forward, int backward, const std::vector<StageCost>& stages);

// Returns a class for every micro-batch of a step: micro-batches of equal length have the same class. Empty if all are
// equal.
std::vector<int> classes_of(const std::vector<MicroBatchLength>& lengths);

// Tasks of the same kind take equally long, whatever the costs are. A kind is an operation of a stage on a device,
// separated further: the last micro-batch of a mini-batch may be smaller, the first gradients are not added to earlier
// gradients, and micro-batches and their slices differ in length. SENDs of the same direction of an edge between two
// devices are a kind, too. A RECV has no kind.
class TaskKinds {
public:
    struct Kind {
        Op op;
        int device, stage;
        bool last_microbatch;
        bool accumulates;
        bool predicts;   // weights, or corrects them; of U: it averages their steps
        int microbatch;  // of the first task of the kind
        int first;       // the first task of the kind
        int count;
        int receiver = -1;   // of a SEND: the receiving device
        int gradients = -1;  // of S: the kind of the pass that makes its last gradients, or -1
        // Where kinds tell pairs apart, the kind of the other task of the pair. The second task has the larger number.
        int pair = -1;
    };
    static constexpr int kNone = -1;

    // `classes` is classes_of() the costs that will be used, `pairs` is overlaps_pairs() of them: then tasks in pairs
    // have different kinds than tasks alone.
    TaskKinds(const Plan& plan, const PlanGraph& graph, const VersionTable& versions,
              const std::vector<int>& classes = {}, bool pairs = false);
    // Makes every node a kind of its own with the node's number, for times that are given task by task. The kind of a
    // RECV has no tasks. `pairs`: whether the tasks of a pair are one launch.
    explicit TaskKinds(const PlanGraph& graph, bool pairs = false);

    // Returns whether tasks of the kind are the second tasks of launches: of pairs of tasks that overlap.
    bool is_second(int kind) const {
        const int first = kind == kNone ? -1 : all_[static_cast<std::size_t>(kind)].pair;
        return first >= 0 && first < kind;
    }
    // Returns the part of the durations of the kind that is dispatch.
    Ns dispatch_of(int kind, const Costs& costs) const { return is_second(kind) ? 0 : costs.dispatch; }
    int of(int node) const { return of_[static_cast<std::size_t>(node)]; }
    const std::vector<Kind>& all() const { return all_; }

    // Returns the duration of every kind. For a SEND this is the time for which it occupies its link, for an S in
    // buckets the time after its messages. In a pair the longer task takes its own time, and the shorter task takes the
    // remaining time of the pair: run sequentially, both take the time of the pair. The dispatch of the pair counts for
    // its first task.
    std::vector<Ns> durations(const PlanGraph& graph, const Shape& shape, const Costs& costs) const;
    // Returns, for every kind of pass that starts a sum which its device does not compute, how long after the end of
    // the last of these passes the sum ends. Empty without such sums.
    // - Gradients in buckets: no S of the stage ends before the last bucket is summed. Buckets do not wait for a device
    //   that reaches its S later.
    // - The forwards of joined stages: no B and W of them starts before the sum ends.
    std::vector<Ns> sum_delays(const Costs& costs) const;
    // Returns by kind how long after the end of a SEND its message arrives. Returns 0 for kinds that are not of SENDs.
    std::vector<Ns> latencies(const Costs& costs) const;
    // Returns the durations while all other devices compute. Empty if the costs do not have them.
    std::vector<Ns> busy_durations(const PlanGraph& graph, const Shape& shape, const Costs& costs) const;

    // Returns whether a reader of a pass waits for the sum that the pass starts, not for the pass alone.
    static constexpr bool waits_for_sum(Op reader, Op pass) {
        return reader == Op::SumGradients || (pass == Op::Forward && is_in(reader, kWaitsForJoined));
    }

private:
    void tell_pairs_apart(const PlanGraph& graph);

    std::vector<int> of_;  // by node
    std::vector<Kind> all_;
};

// Returns the durations by node, including the device's speed and the dispatch. Transfers take 0. All gradients of a
// mini-batch except a stage's first gradients are added to existing gradients, which takes StageCost::accumulate
// longer. Predicting weights precedes the task that reads them: it passes over memory three times, an update five
// times.
std::vector<Ns> durations_of(const Plan& plan, const PlanGraph& graph, const Costs& costs,
                             const VersionTable& versions);
// Returns TaskKinds::sum_delays() by node.
std::vector<Ns> sum_delays_of(const Plan& plan, const PlanGraph& graph, const Costs& costs,
                              const VersionTable& versions);
}  // namespace pw
