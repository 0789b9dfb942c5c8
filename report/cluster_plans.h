// The best plans of a transformer on a cluster, with what they make of it: tokens per second, share of the peak, days
// and money.
#pragma once

#include "job/job.h"
#include "report/hooks.h"
#include "report/json.h"
#include "search/clusters/cluster_search.h"
#include "viz/plot.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace pw {

struct ClusterPlans {
    SearchSetup setup;
    ClusterResult result;
    std::optional<Job> best = {};  // of the best plan; absent if none was found that fits
    double seconds = 0;            // that the search took
};
// Returns why search.program cannot run a plan with a setup, as the limits of a search for a cluster take it; null
// without search.program.
std::function<std::string(const Setup&)> refusal_of_plans(const SearchSetup& setup);
// Makes the job of the best plan that was found.
ClusterPlans found_cluster_plans(const SearchSetup& setup, ClusterResult result);
// Does both: searches, and makes the job. The limits ask `hooks` whether to stop.
ClusterPlans search_best_cluster_plan(const SearchSetup& setup, ClusterLimits limits = {}, const Hooks& hooks = {});

// As those of a PlanSearch (report/plan_search.h).
bool ended_without_a_plan(const ClusterPlans& plans);
void require_plan(const ClusterPlans& plans);

Json to_json(const ClusterPlans& plans);
// Returns the `most` best plans as a table, the plan of the vendor's recipe, and what was searched. There must be a
// best plan.
std::string to_text(const ClusterPlans& plans, std::size_t most);
// Returns the number of rows of a table with at most `most` plans, without the plan of the vendor's recipe.
std::size_t rows_of(const ClusterPlans& plans, std::size_t most);
// Makes the job of a row of the table, from 1.
Job job_in_row(const ClusterPlans& plans, std::size_t row);
// Returns the setup of a row of the table as YAML for `file`, relative to which its paths are written, with what was
// found in comments.
std::string best_config_yaml(const ClusterPlans& plans, const std::string& file, std::size_t row = 1);
// Returns reserved memory against step time of all plans that were simulated, with the Pareto front.
Chart chart_of(const ClusterPlans& plans);

}  // namespace pw
