// What each device does, in order. The simulator and the executor both take exactly this.
#pragma once

#include "schedules/task.h"
#include "workloads/text/choice.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace pw {

// The policy says which version of a stage's weights an F, forward, and its B, backward, use (schedules/versions.h).
enum class WeightPolicy {
    Flush,         // one version: updates only when nothing is in flight
    Stash,         // PipeDream: F takes the newest, B the one its F took
    VerticalSync,  // every stage takes the version that the first stage took
    DoubleBuffer,  // PipeDream-2BW: max(k div m - 1, 0)
    Latest,        // F and B take the newest at their own time
};
template <>
inline constexpr Choice<WeightPolicy> kChoices<WeightPolicy>[] = {{"flush", WeightPolicy::Flush},
                                                                  {"stash", WeightPolicy::Stash},
                                                                  {"vertical_sync", WeightPolicy::VerticalSync},
                                                                  {"double_buffer", WeightPolicy::DoubleBuffer},
                                                                  {"latest", WeightPolicy::Latest}};

// Under Latest, tasks may use weights as they should be some updates later, predicted from the momentum. VersionTable
// says how many updates.
enum class Prediction {
    None,
    SpecTrain,  // in F and B
    PipeOptim,  // in F, up to the version that its B reads
};
template <>
inline constexpr Choice<Prediction> kChoices<Prediction>[] = {
    {"none", Prediction::None}, {"spectrain", Prediction::SpecTrain}, {"pipeoptim", Prediction::PipeOptim}};

struct Edge {
    int from, to;  // stages
    auto operator<=>(const Edge&) const = default;
};
// Returns the edge on which a transfer is: activations go along it, gradients against it.
constexpr Edge edge_of(const Task& transfer) {
    const bool downstream = transfer.op == Op::SendForward || transfer.op == Op::RecvBackward;
    return downstream ? Edge{transfer.stage, transfer.peer} : Edge{transfer.peer, transfer.stage};
}

struct Shape {
    int devices = 1;
    int stages = 1;
    int microbatches = 1;  // micro-batches of the whole plan
    int slices = 1;
    std::vector<std::vector<int>> placement;  // stage -> its devices; when empty, stage s is on device s mod devices
    std::optional<std::vector<Edge>> edges;   // between which stages tensors flow; when absent, the chain
    int per_update = 0;                       // micro-batches of a mini-batch; 0: all
    std::vector<Edge> ties;    // stages that share parameters, from < to: S, the sum of gradients, adds up both
    bool global_norm = false;  // every U, update, waits for the gradients of all stages

    std::vector<int> devices_of(int stage) const;
    std::vector<int> stages_of(int device) const;
    int only_stage_of(int device) const;  // throws Error when the device holds not exactly one
    // Returns the micro-batches that a device serves, ascending: the holders of its stages take turns (PipeDream's
    // 1F1B-RR).
    std::vector<int> microbatches_of(int device) const;
    int devices_before(int stage) const;       // how many hold the stages before it
    std::vector<int> before(int stage) const;  // stages that feed it, ascending
    std::vector<int> after(int stage) const;   // stages it feeds, ascending
    int updates() const;                       // mini-batches of the plan
    int mini_batch_of(int microbatch) const;
    int first_of(int mini_batch) const;  // its first micro-batch
    int last_of(int mini_batch) const;
    bool ends_mini_batch(int microbatch) const;
};

// Places stage s on replicas[s] devices, next to each other and behind those of the stages before it.
std::vector<std::vector<int>> placement_of(const std::vector<int>& replicas);

struct Plan {
    std::string schedule;
    Shape shape;
    WeightPolicy weights = WeightPolicy::Flush;
    Prediction prediction = Prediction::None;
    bool asynchronous = false;             // never flushed: one plan over all mini-batches of the run
    std::vector<std::vector<Task>> order;  // order[device]; whoever lists F(s, i) serves it
    // gradient_parts[stage][micro-batch] numbers the sums: gradients with one number are added up, and S sums those
    // sums in ascending order. When it is empty, a device has one sum. The oracle of a plan with replicas numbers the
    // holders. It is no part of the hash.
    std::vector<std::vector<int>> gradient_parts = {};
};

// A plan as a graph: its nodes are positions in the devices' lists, numbered device by device.
class PlanGraph {
public:
    // Throws Error (BadInput) naming device, position and task when a list holds a task that the
    // shape does not have, or twice, or one whose input no device runs.
    explicit PlanGraph(const Plan& plan);

    int size() const { return static_cast<int>(tasks_.size()); }
    int node(int device, int position) const { return first_[device] + position; }
    int device_of(int node) const { return device_[node]; }
    int position_of(int node) const { return node - first_[device_[node]]; }
    const Task& task(int node) const { return tasks_[node]; }

    // Returns the nodes that must finish before `node` may start: this is the dependency rule, and nothing else knows
    // it. With transfers in the plan an input made on another device is this device's RECV.
    const std::vector<int>& inputs(int node) const { return inputs_[node]; }

    // Returns the node of an F, B, I (backward for inputs), W (backward for weights) or R (recomputation), or of a
    // transfer; -1 when the plan has none. I and W find B.
    int find(const Task& task) const;
    int holder(int stage, int microbatch) const;  // device that lists F(stage, microbatch), or -1
    bool has_transfers() const { return has_transfers_; }

    // Returns the nodes so that inputs and list predecessors come first; they are fewer than size() when a cycle makes
    // that impossible. With `early`, only tasks that compute wait for their list, since a RECV that is posted early
    // keeps nobody but its reader waiting, wherever it stands.
    std::vector<int> topological_order(bool early = false) const;

private:
    std::size_t slot(const Task& task) const;
    void add_nodes(const Plan& plan);
    void connect(const Plan& plan);
    void connect_gradients(const Plan& plan);
    void connect_meetings(const Plan& plan);
    std::vector<Task> inputs_by_rule(const Plan& plan, const Task& task, int device) const;

    int stages_ = 0, microbatches_ = 0;
    bool has_transfers_ = false;
    std::vector<Task> tasks_;
    std::vector<int> device_, first_;
    std::vector<int> node_of_;  // by slot; -1: absent
    std::vector<std::vector<int>> inputs_;
};

// Returns the inputs of one task of a plan; many calls are better served by one PlanGraph.
std::vector<Task> inputs_of(const Task& task, const Plan& plan);

// Returns whether the plan runs I and W. Schedules then run no B; lists from files may hold both.
bool splits_backward(const Plan& plan);

// Prints one line per device: "0: 0F0 0F1 0B0 ...".
std::string print(const Plan& plan);
// Returns 16 hexadecimal digits of xxHash64 over the printed shape and orders.
std::string hash_of(const Plan& plan);

}  // namespace pw
