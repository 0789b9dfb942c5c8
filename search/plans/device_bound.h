// A bound for plans whose devices have several stages: there the slowest stage says little about the slowest device.
#pragma once

#include "search/deadline.h"
#include "search/plans/stage_bounds.h"
#include "workloads/cluster/cluster.h"

#include <cstdint>

namespace pw {

// Returns a lower bound on the step time of all splits: 0 if there are too many pieces to evaluate, and `limit` instead
// of more. Adds the effort to `looked`, in simulated tasks. If the time is up, the bound found so far counts. Throws
// TimeIsUp if there is none.
//
// The step of a split is at least as long as the longest of many times, each of which is a sum over its stages: the
// time of a stage, or the tasks in a device's list from the first F of a stage, which waits for a path of layers, to
// the last backward of another stage, after which a path back remains, or to the updates. Weights that add up to 1 give
// a mean of these times, which is no longer than the longest. Dynamic programming over the cuts finds the split with
// the least mean, which bounds every split. Then the weights move towards the times that are long in that split
// (subgradients with Polyak's steps: Polyak 1969). The greatest bound counts.
//
// Branch and bound raises this bound. A box has a range for each cut. The box with the least bound is divided at a cut,
// and its parts get bounds of their own, until the least bound is close to the longest time of a known split, or the
// effort is spent (Land and Doig 1960). The least bound of all boxes holds for all splits. `effort` is in multiples of
// the usual effort.
Ns bound_of_devices(const Plan& plan, const StageBounds& bounds, const StageSpace& space, const Cluster& cluster,
                    Ns limit, int effort, std::int64_t& looked, Deadline& deadline);

}  // namespace pw
