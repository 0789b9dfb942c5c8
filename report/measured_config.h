// A config whose stages take the times of a trace: all questions about a planned pipeline then apply to a measured one.
#pragma once

#include "report/report.h"
#include "schedules/plan/plan.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

struct MeasuredConfig {
    std::string schedule;  // keys of the block pipeline: "schedule: gpipe, drain: lifo" (empty with a plan)
    // The tasks that compute, in the order of the trace, if no schedule has that order for its shape.
    std::optional<Plan> plan = {};
    std::vector<Ns> forward, backward_input, backward_weight;  // by stage
    Recomputation recompute;  // stages with R, and `saved` and `ahead` if they give the order of the trace
    int devices = 1, micro_batches = 1, micro_batch_size = 1;
};

// Returns a uniform workload with each stage's mean times over the micro-batches of the step that compare --replay
// replays. Where a stage has whole backwards only, half of each counts as the backward for weights. Tensors have no
// size and messages take no time: a trace does not give them. Throws Error (BadInput) for traces of asynchronous
// schedules, without backwards, and with stages on several devices.
MeasuredConfig measured_config(const Report& measured);

// Returns the config as YAML. `plan_file` is where its plan is, if the config has a plan.
std::string print(const MeasuredConfig& config, const std::string& plan_file);

}  // namespace pw
