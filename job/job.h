// A config worked out: everything that a prediction, an execution or a search starts from.
#pragma once

#include "job/config/config.h"
#include "job/cost_source.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/plan.h"
#include "schedules/plan/versions.h"
#include "schedules/trace/trace.h"

#include <memory>
#include <string>
#include <vector>

namespace pw {

struct Proof;       // schedules/passes/passes.h
struct ProvenPlan;  // schedules/orders/schedule.h

struct Job {
    Config config;
    std::shared_ptr<const Model> model;  // null for a uniform workload; then profile and split are empty
    CostSource source = CostSource::Uniform;
    Profile profile;
    StageSplit split;
    Plan plan;                           // the plan of one step, or of all steps when asynchronous
    std::shared_ptr<const Proof> proof;  // that the plan runs through
    std::string deadlock;                // ProvenPlan::deadlock: the plan runs through by the protocol of `mode` only
    VersionTable versions;
    Costs costs;        // complete: cluster and sums included
    TransferMode mode;  // as it will be executed
};

using Notices = std::vector<std::string>;

// Makes the job of a config. Throws Error (BadInput) at the key that asks for what cannot be. `notices` receives what
// the user should know about the plan.
Job make_job(Config config, Notices& notices);
// Makes the job with a profile that is measured already, whatever `cluster.profile` says.
Job make_job(Config config, Profile measured, Notices& notices);
// Makes the job with a model that was built elsewhere, whatever `workload.model` says.
Job make_job(Config config, Model model, Notices& notices);
// Makes the job with a schedule that is in no table, whatever `pipeline.schedule` says; the row outlives the job.
Job make_job(Config config, const Schedule& schedule, Notices& notices);

// Returns the job with another plan, of the same stages.
Job with_plan(Job job, ProvenPlan proven);

// Returns how often a run repeats the plan: an asynchronous one holds all its steps.
int steps_of(const Job& job);

// The first tells whether the costs are of training.precision. Where they are not, a prediction would be one of another run:
// check_precision throws Error (BadInput).
bool knows_precision(const Config& config, const Profile& profile);
void check_precision(const Config& config, const Profile& profile);

// Throws Error (Infeasible) naming the first device that has less memory than is reserved, with the bytes needed and
// available. `reserved` is by device.
void refuse_over_memory(const std::vector<Bytes>& reserved, const Config& config);
// Does the same for what the plan reserves by the job's costs.
void refuse_over_memory(const Job& job);

// Adds to a trace what it says of its config.
void tell_config(Trace& trace, const Config& config);

// What a trace tells of who waits for whom, beside its tasks; of a trace without a config, what is so by default.
struct ToldRules {
    TransferMode mode;                           // as it was executed
    bool global_norm = false;                    // updates wait for all gradients
    std::vector<MicroBatchLength> lengths = {};  // Costs::lengths
};
ToldRules told_rules(const Trace& trace);

}  // namespace pw
