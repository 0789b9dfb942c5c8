// A config worked out: everything that a prediction and an execution are made from.
#pragma once

#include "schedules/plan.h"
#include "schedules/trace/trace.h"
#include "sim/simulate.h"
#include "workloads/config.h"
#include "workloads/costs/costs.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

struct Pipeline {
    Config config;
    std::optional<Model> model;  // absent, with profile and split empty, for `uniform`
    Profile profile;
    bool measured = false;  // the profile is, not analytic
    StageSplit split;
    Costs costs;
    Plan plan;  // of one step, or of all steps when asynchronous
};

// What the reader of a plan in a file has to say goes to `notices`; without, to stderr.
Pipeline pipeline_of(Config config, std::vector<std::string>* notices = nullptr);
// With a profile that is measured already, whatever `cluster.profile` says.
Pipeline pipeline_of(Config config, Profile profile);

// The predicted trace.
Trace predict(const Pipeline& pipeline);

// "resnet50, stages from conv1 | layer3.0, 1f1b, 8 micro-batches of 4".
std::string summary_of(const Pipeline& pipeline);
// What the user should know about the costs; empty when they are measured at this size.
std::string note_on_costs(const Pipeline& pipeline);
// Which of the used sizes of micro-batches have no times of their own, and what theirs are made from; empty: all have.
std::string note_on_sizes(const Pipeline& pipeline, const std::vector<int>& used);

// Whether the costs are of run.precision. Where not, a prediction would be one of another run: predict() and
// check_precision throw Error (BadInput).
bool knows_precision(const Config& config, const Profile& profile);
void check_precision(const Config& config, const Profile& profile);

// Throws Error (Infeasible) naming the first device that has less memory than the plan reserves.
void refuse_over_memory(const Pipeline& pipeline);

// Throws Error (BadInput) for a workload without layers.
void require_layers(const Config& config, const std::string& command);

}  // namespace pw
