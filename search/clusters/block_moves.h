// A choice with unequal numbers of blocks on its stages, found by simulation.
#pragma once

#include "search/clusters/choice_bounds.h"
#include "search/clusters/cluster_search.h"
#include "search/deadline.h"

#include <functional>
#include <optional>

namespace pw {

// Starts from balanced numbers, or from equal ones if the balanced ones do not fit and equal ones may. Moves single
// blocks as long as that makes the plan better. Returns nothing if `limits` refuse the start or it is no plan. The
// processes of the team call it together; `is_over` is asked between moves.
std::optional<ClusterPlan> with_moved_blocks(const ClusterChoice& equal, const ChoiceBounds& bounds,
                                             const Config& config, const ClusterLimits& limits,
                                             const Deadline& deadline, const std::function<bool()>& is_over);

}  // namespace pw
