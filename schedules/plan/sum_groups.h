// Stages whose gradients are summed together, and where the devices that do so meet.
#pragma once

#include "schedules/plan/plan.h"
#include "schedules/plan/plan_graph.h"

#include <vector>

namespace pw {

// A group is a stage, or all stages that share parameters with each other.
struct SumGroup {
    std::vector<int> stages, devices;  // ascending
};

// Returns the groups ordered by their first stages; every stage is in one of them.
std::vector<SumGroup> sum_groups(const Shape& shape);
// Returns whether a stage has several holders, or parameters that another stage shares: then its S, the sum of
// gradients, stands on every holder.
bool needs_sum(const Shape& shape, int stage);
bool is_tied(const Shape& shape, int stage);
// Returns whether the sum of a stage may go on in buckets beside the backward that fills them: not where the stage
// shares parameters with another, nor where one of its holders has other stages.
bool may_overlap_sum(const Shape& shape, int stage);

// A barrier is tasks of several devices that none of them does before all are there: the S of a group, and with
// Shape::global_norm every U, the update.
struct Barrier {
    std::vector<int> stages;  // stages of the group; for U, all stages
    std::vector<int> nodes;   // ascending
    std::vector<int> first;   // the first node of every device: there it waits for the others
};

// Returns the barriers of all mini-batches.
std::vector<Barrier> barriers_of(const PlanGraph& graph, const Shape& shape);

}  // namespace pw
