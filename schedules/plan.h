// What each device does, in order. The simulator and the executor both take exactly this.
#pragma once

#include "schedules/task.h"

#include <string>
#include <vector>

namespace pw {

// Which version of a stage's weights an F and its B use (schedules/versions.h).
enum class WeightPolicy {
    Flush,         // one version: updates only when nothing is in flight
    Stash,         // PipeDream: F takes the newest, B the one its F took
    VerticalSync,  // every stage takes the version that the first stage took
    DoubleBuffer,  // PipeDream-2BW: max(k div m - 1, 0)
    Latest,        // F and B take the newest at their own time
};

std::string_view name_of(WeightPolicy policy);

struct Edge {
    int from, to;  // stages
    auto operator<=>(const Edge&) const = default;
};

struct Shape {
    int devices = 1;
    int stages = 1;
    int microbatches = 1;  // of the whole plan
    int slices = 1;
    std::vector<std::vector<int>> placement;  // stage -> its devices; empty: stage s on device s mod devices
    std::vector<Edge> edges;                  // between which tensors flow; empty: the chain
    int per_update = 0;                       // micro-batches of a mini-batch; 0: all

    std::vector<int> devices_of(int stage) const;
    std::vector<int> stages_of(int device) const;
    int only_stage_of(int device) const;  // throws Error when the device holds not exactly one
    std::vector<int> before(int stage) const;  // stages that feed it, ascending
    std::vector<int> after(int stage) const;   // stages it feeds, ascending
    int updates() const;                       // mini-batches of the plan
};

struct Plan {
    std::string schedule;
    Shape shape;
    WeightPolicy weights = WeightPolicy::Flush;
    bool asynchronous = false;             // never flushed: one plan over all mini-batches of the run
    std::vector<std::vector<Task>> order;  // order[device]; whoever lists F(s, i) serves it
};

// The device whose list has F(stage, microbatch); -1 when none has.
int holder_of(const Plan& plan, int stage, int microbatch);

// Tasks that must finish before `task` may start. With transfers in the plan, an input made on
// another device is this device's RECV. The only place that knows the rule.
// (Many calls on one plan: use PlanIndex, which answers in constant time.)
std::vector<Task> inputs_of(const Task& task, const Plan& plan);

// The tasks that `task` finishes: {I, W} and itself for B, else itself.
std::vector<Task> parts_of(const Task& task);

// One line per device: "0: 0F0 0F1 0B0 ...".
std::string print(const Plan& plan);
// 16 hexadecimal digits of xxHash64 over the printed shape and orders.
std::string hash_of(const Plan& plan);

}  // namespace pw
