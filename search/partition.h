// The answer of every partitioner: the layers of each stage, and the value of the partition.
#pragma once

#include "workloads/units.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace pw {

// A time, load or objective that no partition reaches.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

struct PlannedStage {
    std::vector<int> layers;           // numbers in the instance, ascending
    int replicas = 1;                  // devices that hold the stage (data parallel)
    int tensor_degree = 1;             // devices that share each layer of the stage
    std::vector<int> recomputed = {};  // recomputed layers of the stage, ascending
    bool on_cpu = false;
    double time = 0;  // the objective is the maximum of these, in the instance's unit
    Bytes memory = 0;
};

// Why no partition exists: the stage of the best try that needs more memory than there is.
struct Shortage {
    int stage = 0;
    Bytes needs = 0, has = 0;
};

struct Partition {
    std::vector<PlannedStage> stages;  // in the order of the data; empty when there is no partition
    double objective = 0;              // in the instance's unit
    double lower_bound = 0;            // equals the objective when the search was complete
    std::optional<Shortage> shortage;  // present for an infeasible instance
    std::int64_t candidates = 0;       // stages that were evaluated
};

}  // namespace pw
