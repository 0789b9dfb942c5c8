// The best plan of a setup's model and devices, with a proof of how good it is.
#pragma once

#include "job/job.h"
#include "report/hooks.h"
#include "report/json.h"
#include "report/plan_chart.h"
#include "search/plans/makespan.h"
#include "viz/plot.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace pw {

// Returns the problem that a setup poses. Throws Error (BadInput) at the key whose value cannot be used, and for a
// workload without layers.
SearchProblem posed_search(const SearchSetup& setup);
// Returns why search.program cannot run a plan with a setup, as the limits of a search take it. Null without
// search.program.
std::function<std::string(const Setup&)> refusal_of_plans(const SearchSetup& setup);

struct PlanSearch {
    SearchProblem problem;
    SearchResult result;           // its notes are for the user
    std::optional<Job> best = {};  // of the best plan (absent where none was found that fits)
    double seconds = 0;            // that the search took
    // The choice of the best plan with the other value of pipeline.cuts, where that plan is known and has another
    // split.
    std::optional<FoundPlan> other_cuts = {};
    std::vector<Ns> unhidden = {};  // unhidden_steps() (report/plan_lead.h)
};
// Searches for `PlanSearch::other_cuts`, with a tenth of the usual effort.
std::optional<FoundPlan> plan_of_other_cuts(const SearchProblem& problem, const SearchResult& result,
                                            PlanLimits limits);
// Makes the job of the best plan that was found.
PlanSearch found_plans(SearchProblem problem, SearchResult result);
// Does all three: poses the problem, searches, and makes the job. The limits ask `hooks` whether to stop.
PlanSearch search_best_plan(const SearchSetup& setup, PlanLimits limits = {}, const Hooks& hooks = {});

// Returns whether a limit or the caller ended the search before any plan was tried.
bool ended_without_a_plan(const PlanSearch& search);
// Throws Error (Infeasible) with the closest try where no plan was found that fits.
void require_plan(const PlanSearch& search);

Json to_json(const PlanSearch& search);
// Returns the best plans of at most `most` kinds as a table, and more about the best plan. There must be a plan. The
// kind of a plan of a layer graph is its schedule and number of stages, where data parallelism is one kind. The kind of
// a plan of a transformer is its degrees.
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

const char* name_of(SearchStop stop);  // "time limit" (empty if nothing stopped the search)
// Returns a setup as YAML for `file`, relative to which its paths are written, without blocks of defaults. Without a
// file its paths are absolute.
std::string yaml_for(const Setup& setup, const std::string& file);

}  // namespace pw
