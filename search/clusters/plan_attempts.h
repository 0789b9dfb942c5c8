// Simulations of several plans for a cluster at once, by threads and processes.
#pragma once

#include "search/clusters/cluster_search.h"
#include "search/deadline.h"

#include <optional>
#include <vector>

namespace pw {

// A plan that was to be simulated: absent if its schedule refuses the choice, or if there was not the memory or the
// time.
struct Attempt {
    bool has_memory = true;
    bool has_time = true;
    std::optional<FoundPlan> plan = {};
};

// Returns the attempts at all choices. The processes of the team call this together. Each simulates its part. A plan
// that runs out of memory is tried again alone. At the deadline the simulations under way end.
std::vector<Attempt> attempts_at(const std::vector<const PlanChoice*>& choices, const SearchSetup& setup,
                                 const PlanLimits& limits, const Deadline& deadline);

}  // namespace pw
