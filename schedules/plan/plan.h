// What each device does, in order. The simulator and the executor both take exactly this.
#pragma once

#include "schedules/plan/task.h"
#include "workloads/text/choice.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace pw {

// The version of a stage's weights that an F, forward, and its B, backward, use
// (schedules/plan/versions.h).
enum class WeightPolicy {
    Flush,         // a single version: updates only when nothing is in flight
    Stash,         // PipeDream: F takes the newest, B takes the version of its F
    VerticalSync,  // every stage takes the version that the first stage took
    DoubleBuffer,  // PipeDream-2BW: max(k div m - 1, 0)
    Latest,        // F and B each take the newest when they run
};
template <>
inline constexpr Choice<WeightPolicy> kChoices<WeightPolicy>[] = {{"flush", WeightPolicy::Flush},
                                                                  {"stash", WeightPolicy::Stash},
                                                                  {"vertical_sync", WeightPolicy::VerticalSync},
                                                                  {"double_buffer", WeightPolicy::DoubleBuffer},
                                                                  {"latest", WeightPolicy::Latest}};

// Under Latest, tasks may use weights some updates later than their version, predicted from the momentum, or some
// updates earlier, estimated from the average of past steps. VersionTable has the number of updates.
enum class Prediction {
    None,
    SpecTrain,  // later, in F and B
    PipeOptim,  // later, in F, up to the version that its B reads
    PipeMare,   // earlier, in B, down to the version that its F has read
};
template <>
inline constexpr Choice<Prediction> kChoices<Prediction>[] = {{"none", Prediction::None},
                                                              {"spectrain", Prediction::SpecTrain},
                                                              {"pipeoptim", Prediction::PipeOptim},
                                                              {"pipemare", Prediction::PipeMare}};

struct Edge {
    int from, to;  // stages
    auto operator<=>(const Edge&) const = default;
};
// Returns the edge of a transfer: activations follow it, gradients go against it.
constexpr Edge edge_of(const Task& transfer) {
    return facts_of(transfer.op).peers == PeerStages::After ? Edge{transfer.stage, transfer.peer}
                                                            : Edge{transfer.peer, transfer.stage};
}

struct Shape {
    int devices = 1;
    int stages = 1;
    int microbatches = 1;  // micro-batches of the whole plan, or with slices the number of slices
    // Slices of the sequence that every micro-batch is cut into. A plan counts and numbers slices as it does
    // micro-batches: slice q of micro-batch i is number i * slices + q. They differ only where samples are counted.
    int slices = 1;
    int copies = 1;  // of the whole pipeline, each with devices / copies devices
    // The devices of each stage, ascending. Empty: stage s is on device s mod devices.
    std::vector<std::vector<int>> placement;
    // The devices that serve each stage's micro-batches in turn. Empty: its holders, each equally often.
    std::vector<std::vector<int>> serving;
    std::optional<std::vector<Edge>> edges;  // stages between which tensors flow. Absent: the chain
    int per_update = 0;                      // micro-batches of a mini-batch (with slices, slices), or 0: all
    std::vector<Edge> ties;                  // stages that share parameters, from < to: S adds up the gradients of both
    bool global_norm = false;                // every U, update, waits for the gradients of all stages
    // Stages that run forwards only, ascending: they have frozen layers, and no stage before them trains. In a plan
    // with backwards, the stages that feed them are such stages, too.
    std::vector<int> forwards_only = {};
    // Stages that each compute a part of one layer, ascending. Their forwards of a micro-batch start a sum over all of
    // them. B and W of each wait for it, and I does not.
    std::vector<int> joined = {};

    std::vector<int> devices_of(int stage) const;
    std::vector<int> stages_of(int device) const;
    int server_of(int stage, int microbatch) const;  // the device that runs its F and its backward
    int devices_before(int stage) const;             // the number of devices that hold the stages before it
    std::vector<int> before(int stage) const;        // stages that feed it, ascending
    std::vector<int> after(int stage) const;         // stages it feeds, ascending
    bool runs_forwards_only(int stage) const;
    bool is_joined(int stage) const;
    int updates() const;  // mini-batches of the plan
    int mini_batch_of(int microbatch) const;
    int first_of(int mini_batch) const;  // its first micro-batch
    int last_of(int mini_batch) const;
    bool ends_mini_batch(int microbatch) const;
    int whole_of(int microbatch) const { return microbatch / slices; }  // the micro-batch of a slice
    int slice_of(int microbatch) const { return microbatch % slices; }
    bool is_in_last_of_mini_batch(int microbatch) const;  // whether it is the last micro-batch or a slice of it
    Task task(Op op, int stage, int microbatch) const;    // with the name that it has in a plan of this shape
};

// Places stage s on replicas[s] consecutive devices, after the devices of the stages before it.
std::vector<std::vector<int>> placement_of(const std::vector<int>& replicas);

struct Plan {
    std::string schedule;
    Shape shape;
    WeightPolicy weights = WeightPolicy::Flush;
    Prediction prediction = Prediction::None;
    bool asynchronous = false;             // never flushed: a plan over all mini-batches of the run
    std::vector<std::vector<Task>> order;  // order[device]
    // By stage, of asynchronous plans that list F ahead: the number of micro-batches whose gradients F lacks and the B
    // of its micro-batch finds, in the steady state. Empty: not known.
    std::vector<int> missing_gradients = {};
    // gradient_parts[stage][micro-batch] numbers partial sums: gradients with the same number are added up, and S adds
    // the partial sums in ascending order. Empty: a device has a single sum. In the oracle of a plan with replicas the
    // numbers are the holders' numbers. The hash does not include them.
    std::vector<std::vector<int>> gradient_parts = {};
};

// Sets Shape::serving from the lists of a plan that was read: the device that lists F(s, i) serves micro-batch i on
// stage s. It stays empty where holders take turns.
void serve_as_listed(Plan& plan);

// Sets Shape::forwards_only from the lists of a plan that was read: the stages of a plan with backwards that have none,
// if the stages that feed them have none either.
void run_forwards_as_listed(Plan& plan);

bool has_copies(const std::vector<Task>& order);  // between its device and the host

// Returns the inputs of a task. For many tasks use a PlanGraph (schedules/plan/plan_graph.h).
std::vector<Task> inputs_of(const Task& task, const Plan& plan);

// Which tasks backwards are: B, I and W, or either for each micro-batch of a stage.
enum class BackwardForm { Whole, Split, Mixed };
BackwardForm backward_form(const std::vector<std::vector<Task>>& order);
// Returns whether the plan has I and W.
bool splits_backward(const Plan& plan);

// Prints a line per device: "0: 0F0 0F1 0B0 ...", a pair as "(0F1;3B0)".
std::string print(const Plan& plan);
// Returns 16 hexadecimal digits of xxHash64 over the printed shape and orders.
std::string hash_of(const Plan& plan);

}  // namespace pw
