// The search for the fastest plan of a transformer on a cluster: degrees of parallelism, schedule, stages per device,
// size of micro-batches, recomputation and ZeRO at once, within the memory of the devices.
#pragma once

#include "search/found_plans.h"

#include <cstddef>
#include <vector>

namespace pw {

// Degrees of tensor, pipeline, context, expert and expert_tensor: of all stages, or of each stage.
using DegreesKey = std::vector<int>;
DegreesKey degrees_key(const PlanChoice& choice);

// Returns the best plans that fit, each with other degrees.
std::vector<const FoundPlan*> best_by_degrees(const SearchResult& result, std::size_t most);

// Searches. The same config gives the same result on every machine, unless time, memory or the caller ends the search:
// then the result has the plans found so far. The processes of a team call this together, with the same `exact`. Throws
// Error (BadInput) if the setup leaves nothing to try.
SearchResult search_cluster(const SearchSetup& setup, const PlanLimits& limits = {},
                            const SearchProgress& progress = {});

}  // namespace pw
