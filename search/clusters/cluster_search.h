// The search for the fastest plan of a transformer on a cluster: degrees of parallelism, schedule, stages per device,
// size of micro-batches, recomputation and ZeRO at once, within the memory of the devices.
#pragma once

#include "search/clusters/search_team.h"
#include "search/clusters/step_parts.h"
#include "search/plan_choice.h"
#include "search/plans/makespan.h"
#include "workloads/transformers/recipes.h"

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pw {

struct ClusterLimits {
    double seconds = std::numeric_limits<double>::infinity();
    int threads = 1;                            // never change the answer, unless something ends the search
    std::size_t exact = 10;                     // this many degrees are proven the best, each with its best plan
    std::function<bool()> should_stop = {};     // asked often, by all threads
    Ns below = std::numeric_limits<Ns>::max();  // plans with longer steps need not be found
    SearchTeam team = {};                       // shares the work; the result is that of one process
    // Returns why a plan with this setup must not be proposed; empty: it may be. Null: every plan may be. One answer
    // for each setup, on all processes.
    std::function<std::string(const Setup& setup)> refusal = {};
};

struct ClusterNumbers {
    Ns step_time = 0;
    Ns exposed = 0;  // time that the device that waits longest for messages between stages waits
    double bubble_rate = 0;
    StepParts parts = {};
    bool fits = false;
};

// A plan that was simulated.
struct ClusterPlan : ClusterNumbers {
    PlanChoice choice;
    std::vector<Bytes> reserved;                  // by device of the pipeline
    std::shared_ptr<const ProvenPlan> plan = {};  // what make_job makes of it, if this process made it by costs
    Bytes most_reserved() const;
};

// Returns whether plan a comes before plan b: a plan that fits, then the faster plan, then the smaller plan.
bool is_better(const ClusterPlan& a, const ClusterPlan& b);

struct ClusterResult {
    std::vector<ClusterPlan> plans;      // those that fit first, then by step time
    const Recipe* recipe = nullptr;      // the nearest one that the cluster can run
    std::optional<ClusterPlan> vendor;   // its plan, also if the search does not list it
    Ns lower_bound = 0;                  // on every choice; the best step time if that is proven
    Ns equal_bound = 0;                  // on every choice with as equal numbers of blocks as possible
    std::optional<Shortage> shortage;    // of the choice that needs least, if no plan fits
    std::optional<PlanChoice> smallest;  // that choice
    bool every_bound = true;             // false: it ended before all bounds were known
    bool none_fits = false;              // it is proven that no plan fits
    int choices = 0;                     // without those that their schedule refuses
    int too_large = 0;                   // do not fit by the bound on their memory
    int too_slow = 0;                    // are no faster than the best ones by the bound on their step
    int refused = 0;                     // could be the best ones, but ClusterLimits::refusal refuses them
    std::string refusal;                 // of the fastest one by its bound
    int untried = 0;                     // are ordered by costs, which takes long, and might be faster
    int fitting = 0;                     // how many of `plans` fit
    // Orders of hosts: searched, no faster by their bounds, and not searched although they may be faster.
    int orders = 1, slow_orders = 0, orders_left = 0;
    int left_out = 0;  // for which there was not enough memory
    SearchStop stop = SearchStop::None;

    const ClusterPlan* best() const;  // null if there is none
    // Returns the best plans that fit, each with other degrees of tensor, pipeline, context and expert.
    std::vector<const ClusterPlan*> best_by_degrees(std::size_t most) const;
};

// Searches. The same config gives the same result on every machine, unless time, memory or the caller ends the search:
// then the result has the plans found so far. The processes of a team call it together, with the same `exact`. Throws
// Error (BadInput) if the setup leaves nothing to try.
ClusterResult search_cluster(const SearchSetup& setup, const ClusterLimits& limits = {},
                             const SearchProgress& progress = {});

}  // namespace pw
