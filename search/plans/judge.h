// The value of splits of a model under one plan choice: the simulated step.
#pragma once

#include "job/plan.h"
#include "search/partition.h"
#include "search/plans/search_problem.h"
#include "sim/simulate.h"

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace pw {

class Judge {
public:
    // It refers to all arguments. Throws Error if the schedule is not defined for the choice.
    Judge(const SearchProblem& problem, const PlanChoice& choice, const Profile& profile, const CostTable& costs);

    const Setup& setup() const { return setup_; }
    const Cluster& cluster() const { return *cluster_; }
    // Sets the effort with which orders are found that depend on the split.
    void set_effort(double effort);
    // From now on splits whose stages feed the same stages have the order of this split, until release_order().
    void hold_order(const StageSplit& split);
    void release_order();
    // Returns the plan for stages that feed only the next stage, or plan_of_any_order() if the order depends on the
    // split.
    const Plan& plan() const { return chain_; }

    // Returns the step time of the simulated plan, as `simulate` reports it. Nothing if the schedule refuses the edges
    // of the split.
    std::optional<Ns> step_time(const StageSplit& split);
    std::optional<double> bubble_rate(const StageSplit& split);
    // Returns the plan of the split, or null if the schedule refuses its edges.
    std::shared_ptr<const ProvenPlan> plan_of(const StageSplit& split);
    // The bytes that a run reserves on every device.
    std::vector<Bytes> reserved(const StageSplit& split);
    // Returns the shortage of the device that lacks most, or nothing if the plan fits. This alone decides whether a
    // simulated plan fits.
    std::optional<Shortage> shortage(const std::vector<Bytes>& reserved) const;
    // Returns the same without computing the reserved memory of devices that have enough.
    std::optional<Shortage> shortage(const StageSplit& split);

private:
    struct Candidate {
        std::shared_ptr<const Plan> plan;
        std::shared_ptr<const Proof> proof;
        std::shared_ptr<const VersionTable> versions;
        Simulator simulator;
    };
    Candidate* candidate_for(const StageSplit& split);
    Candidate* ordered_for(const StageSplit& split);
    std::unique_ptr<Candidate> candidate_of(const StageLinks& links, const CostsOfShape& costs_of) const;
    std::vector<Bytes> reserved(const StageSplit& split, std::span<const Bytes> enough);
    Costs executed(Costs of_stages, const StageSplit& split, const Plan& plan) const;

    const SearchProblem& problem_;
    const CostTable& costs_;
    Setup setup_;
    std::shared_ptr<const Cluster> cluster_;
    TransferMode mode_;
    Plan chain_;
    std::vector<Bytes> memory_;  // by device
    std::map<StageLinks, std::unique_ptr<Candidate>> candidates_;
    std::int64_t kept_tasks_ = 0;  // tasks of the plans in candidates_
    bool orders_by_costs_;
    std::vector<std::vector<int>> ordered_layers_;  // the split of ordered_
    std::optional<StageLinks> held_links_;          // of the splits that have the order of ordered_
    std::unique_ptr<Candidate> ordered_;
};

}  // namespace pw
