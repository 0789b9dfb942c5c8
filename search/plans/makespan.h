// The search that judges plans by their simulated step time: over schedule, micro-batch size, number of stages, order
// of devices, recomputed stages and split of a layer graph at once, or the degrees of a transformer
// (search/clusters/cluster_search.h), within the memory of every device. A lower bound over all plans prunes the
// search, and is printed.
#pragma once

#include "search/found_plans.h"
#include "search/plans/search_problem.h"

namespace pw {

// Returns the setup of a found plan, ready for make_job.
Setup setup_of(const SearchProblem& problem, const FoundPlan& plan);

// Searches for the best plan. The same problem gives the same result on every machine, unless time, memory (a failed
// allocation) or the caller ends the search: then the result has the plans found so far. Throws Error (BadInput) if the
// config leaves nothing to try.
SearchResult search_plans(const SearchProblem& problem, const PlanLimits& limits = {},
                          const SearchProgress& progress = {});

}  // namespace pw
