// Stages whose gradients are summed together, and the barriers of the devices that do so.
#pragma once

#include "schedules/plan/plan.h"
#include "schedules/plan/plan_graph.h"

#include <vector>

namespace pw {

// A group is a stage, or all stages that share parameters with each other.
struct SumGroup {
    std::vector<int> stages, devices;  // ascending
};

// Returns the groups ordered by their first stages. Every stage is in a group.
std::vector<SumGroup> sum_groups(const Shape& shape);
// Returns whether the stage has an S on every holder: it has several holders, or shares parameters with another stage.
bool needs_sum(const Shape& shape, int stage);
bool is_tied(const Shape& shape, int stage);
// Returns whether the holders of every stage are copies of one device (Shape::copies) with equally many micro-batches.
// Their lists are then alike, and each S follows the last gradient of its stage on all of them: holders cannot wait for
// each other in a cycle.
bool has_equal_copies(const Shape& shape);
// Returns whether a stage may sum its gradients in buckets while the backward still fills them. It may not if it shares
// parameters with another stage, or if a holder has further stages, unless all are equal copies.
bool may_overlap_sum(const Shape& shape, int stage);

// Tasks of several devices, none of which starts before all devices have arrived: the S of a group and, with
// Shape::global_norm, every U.
struct Barrier {
    std::vector<int> stages;  // stages of the group, or for U all stages
    std::vector<int> nodes;   // ascending
    std::vector<int> first;   // the first node of every device, at which it waits for the rest
};

// Returns the barriers of all mini-batches.
std::vector<Barrier> barriers_of(const PlanGraph& graph, const Shape& shape);

}  // namespace pw
