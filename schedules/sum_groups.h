// Stages whose gradients are summed together, and where the devices that do so meet.
#pragma once

#include "schedules/plan.h"

#include <vector>

namespace pw {

// A stage, or all stages that share parameters with each other.
struct SumGroup {
    std::vector<int> stages, devices;  // ascending
};

// Every stage is in one of them; ordered by their first stages.
std::vector<SumGroup> sum_groups(const Shape& shape);
// Several holders, or parameters that another stage shares: the stage's S stands on every holder.
bool needs_sum(const Shape& shape, int stage);
bool is_tied(const Shape& shape, int stage);

// Tasks of several devices that none of them does before all are there: the S of a group, and with
// Shape::global_norm every U.
struct Meeting {
    std::vector<int> stages;  // of the group; of U all
    std::vector<int> nodes;   // ascending
    std::vector<int> first;   // of every device the first: there it waits for the others
};

// Of all mini-batches.
std::vector<Meeting> meetings_of(const PlanGraph& graph, const Shape& shape);

}  // namespace pw
