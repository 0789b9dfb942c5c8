// Small spaces of plans on a cluster, whose every config is predicted: what a search must find.
#pragma once

#include "workloads/units.h"

#include <string>
#include <vector>

namespace pw {

// A schedule with the stages of each device, and how it cuts sequences.
struct Ordered {
    std::string schedule;
    int chunks, slices = 1;
    std::string lengths = "even";
};

// The values that the loop tries.
struct Space {
    std::string base;
    int devices, mini_batch;
    std::vector<int> tensor, pipeline, context, expert, sizes, zero;
    std::vector<std::string> recompute;
    std::vector<Ordered> schedules;
    std::vector<int> expert_tensor = {1};
    std::string pipeline_keys = {};  // of `base` and of every config: "pairs: true"
};

struct Tried {
    std::string name, degrees;
    Ns step_time = 0;
    Bytes reserved = 0;
    bool fits = false;
};

// Predicts every config of the space, the fastest first.
std::vector<Tried> every_plan(const Space& space);

// The ten best degrees (PlanLimits::exact) have the best plans of the loop, and every plan has its own numbers.
void expect_the_same(const Space& space);

}  // namespace pw
