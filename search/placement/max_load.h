// Contiguous placement with the least maximum load. The load of an accelerator is the time of its nodes plus the
// transfer time of every tensor that crosses its border, each tensor once. The load of a CPU is the time of its nodes.
// Forward nodes of a device lie between two downsets of the forward graph, backward nodes follow their forward mates.
#pragma once

#include "search/deadline.h"
#include "search/partition.h"
#include "search/placement/placement_instance.h"

namespace pw {

// Finds the best placement. The search is exact unless a limit stops it. Then the lower bound says how far the answer
// may be from the best. Empty devices are left out. If nothing fits, the result has no stages, and the shortage of the
// placement that needs the least memory.
Partition max_load_partition(const PlacementInstance& instance, const SearchLimits& limits = {});

}  // namespace pw
