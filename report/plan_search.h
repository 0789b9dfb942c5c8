// The best plan of a setup's model and devices, with a proof of how good it is.
#pragma once

#include "job/job.h"
#include "report/hooks.h"
#include "report/json.h"
#include "report/plan_chart.h"
#include "search/plans/makespan.h"
#include "viz/plot.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace pw {

// Returns the problem that a setup poses. Throws Error (BadInput) at the key whose value cannot be used, and for a
// workload without layers.
SearchProblem posed_search(const SearchSetup& setup);

struct PlanSearch {
    SearchProblem problem;
    SearchResult result;           // its notes are for the user
    std::optional<Job> best = {};  // of the best plan; absent where none was found that fits
    double seconds = 0;            // that the search took
    // The choice of the best plan with the other value of pipeline.cuts, where that is known and another split.
    std::optional<FoundPlan> other_cuts = {};
};
// Searches for `PlanSearch::other_cuts`, with a tenth of the usual effort.
std::optional<FoundPlan> plan_of_other_cuts(const SearchProblem& problem, const SearchResult& result,
                                            MakespanLimits limits);
// Makes the job of the best plan that was found.
PlanSearch found_plans(SearchProblem problem, SearchResult result);
// Does all three: poses the problem, searches, and makes the job. The limits ask `hooks` whether to stop.
PlanSearch search_best_plan(const SearchSetup& setup, MakespanLimits limits = {}, const Hooks& hooks = {});

// Returns whether a limit or the caller ended the search before any plan was tried.
bool ended_without_a_plan(const PlanSearch& search);
// Throws Error (Infeasible) with the closest try where no plan was found that fits.
void require_plan(const PlanSearch& search);

Json to_json(const PlanSearch& search);
// Returns the best plans of at most `most` kinds, schedule and number of stages, as a table, each plan once and data
// parallelism once, and the stages of the best one. There must be one.
std::string to_text(const PlanSearch& search, std::size_t most);
// Returns the number of rows of a table with at most `most` plans.
std::size_t rows_of(const PlanSearch& search, std::size_t most);
// Makes the job of a row of the table, from 1.
Job job_in_row(const PlanSearch& search, std::size_t row);
// Returns the setup of a row of the table as YAML for `file`, relative to which its paths are written, with what was
// found in comments.
std::string best_config_yaml(const PlanSearch& search, const std::string& file, std::size_t row = 1);
// Returns reserved memory against step time of the plans, with the Pareto front.
Chart chart_of(const PlanSearch& search);

// What the reports of all searches for plans share.

const char* name_of(SearchStop stop);  // "time limit"; empty if nothing stopped it
// Returns the memory that all devices have if it is the same and limited; else kUnlimited.
Bytes common_limit(const std::vector<DeviceConfig>& devices);
// Returns the words on a row that is not the first, in the comments of its config.
std::string place_of_row(std::size_t row, Ns best);
// Returns a setup as YAML for `file`, relative to which its paths are written, without blocks of defaults. Without a
// file its paths are whole.
std::string yaml_for(const Setup& setup, const std::string& file);

}  // namespace pw
