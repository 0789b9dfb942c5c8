// What transfers and copies move.
#pragma once

#include "schedules/plan/plan_graph.h"
#include "schedules/plan/shape_index.h"
#include "workloads/costs/costs.h"

#include <array>
#include <vector>

namespace pw {

// Keeps references to its arguments.
class Traffic {
public:
    Traffic(const Shape& shape, const ShapeIndex& index, const Costs& costs);

    // Returns the bytes that a task moves. A smaller last micro-batch moves fewer, the length of a micro-batch scales
    // them; tasks and edges without data move 0.
    Bytes bytes(const Task& task) const;
    std::vector<Bytes> bytes(const PlanGraph& graph) const;  // by node

private:
    using Loads = std::array<std::vector<Bytes>, 2>;  // [0: activations, 1: gradients][edge]

    const Shape& shape_;
    const ShapeIndex& index_;
    const Costs& costs_;
    Loads full_, last_;  // empty if the last micro-batch of a mini-batch is not smaller
};

}  // namespace pw
