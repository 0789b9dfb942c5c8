// Everything that is made from a setup and that a prediction, an execution or a search starts from.
#pragma once

#include "job/cost_source.h"
#include "job/setup/setup.h"
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
    Setup setup;
    std::shared_ptr<const Model> model;  // null for a uniform workload, whose profile and split are empty
    CostSource source = CostSource::Uniform;
    Profile profile;
    StageSplit split;
    Plan plan;                           // the plan of one step, or of all steps if asynchronous
    std::shared_ptr<const Proof> proof;  // the proof that the plan completes
    std::string deadlock;  // ProvenPlan::deadlock, if the plan completes only under the protocol of `mode`
    VersionTable versions;
    Costs costs;        // complete, including cluster and sums
    TransferMode mode;  // as it will be executed
};

using Notices = std::vector<std::string>;

// Makes the job of a setup. Throws Error (BadInput) at the key whose value cannot be used. `notices` receives notes
// about the plan for the user.
Job make_job(Setup setup, Notices& notices);
// Takes the plan that was made before for the same config, since a plan by costs takes long. Null: the plan is made
// here.
Job make_job(Setup setup, const ProvenPlan* known, Notices& notices);
// Makes the job with a profile that has been measured, instead of `cluster.profile`.
Job make_job(Setup setup, Profile measured, Notices& notices);
// Makes the job with a model that was built elsewhere, instead of `workload.model`.
Job make_job(Setup setup, Model model, Notices& notices);
// Makes the job with a schedule that is in no table, instead of `pipeline.schedule`. The row must outlive the job.
Job make_job(Setup setup, const Schedule& schedule, Notices& notices);

// Returns the job with another plan of the same stages.
Job with_plan(Job job, ProvenPlan proven);

// Returns how often a run repeats the plan. An asynchronous plan has all steps and runs once.
int steps_of(const Job& job);

// Returns whether the learning rates of stages may be divided by their delays. Weights predicted from the momentum
// count on equal rates.
constexpr bool divides_rates(Prediction prediction) {
    return prediction == Prediction::None || prediction == Prediction::PipeMare;
}
// Returns the number of updates in which the division of learning rates by delays ends, or 0 if none is divided. For a
// schedule that corrects weights by default this is a quarter of the steps unless the setup has the number.
int anneal_steps_of(const Job& job);

// has_precision() returns whether the costs are of training.precision. If they are not, a prediction would be of
// another run, and check_precision() throws Error (BadInput).
bool has_precision(const Setup& setup, const Profile& profile);
void check_precision(const Setup& setup, const Profile& profile);

// Throws Error (Infeasible) with the first device that has less memory than is reserved, and the bytes needed and
// available. `reserved` is by device.
void refuse_over_memory(const std::vector<Bytes>& reserved, const Setup& setup);
// The same for the memory that the plan reserves according to the job's costs.
void refuse_over_memory(const Job& job);

}  // namespace pw
