// A choice with unequal numbers of blocks on its stages, found by simulation.
#pragma once

#include "search/clusters/choice_bounds.h"
#include "search/clusters/cluster_search.h"
#include "search/deadline.h"

#include <functional>
#include <optional>
#include <vector>

namespace pw {

// Returns the plans of choices with balanced numbers of blocks. Returns nothing for a choice that `limits` refuse or
// that has no plan. The processes of the team call this together.
std::vector<std::optional<FoundPlan>> balanced_plans(const std::vector<const PlanChoice*>& equal,
                                                     const SearchSetup& setup, const PlanLimits& limits,
                                                     const Deadline& deadline);

// Moves single blocks as long as that makes the plan better. Starts from the balanced plan, or from equal numbers if
// the balanced plan does not fit and equal numbers may. The processes of the team call this together. `is_over` is
// asked between moves.
FoundPlan with_moved_blocks(FoundPlan balanced, const ChoiceBounds& bounds, const SearchSetup& setup,
                            const PlanLimits& limits, const Deadline& deadline, const std::function<bool()>& is_over);

}  // namespace pw
