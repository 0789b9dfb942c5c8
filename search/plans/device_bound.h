// A bound for plans whose devices have several stages, where the slowest stage says little about the slowest device.
#pragma once

#include "search/deadline.h"
#include "search/plans/plan_bound.h"

#include <cstdint>
#include <functional>

namespace pw {

// Returns a step time that no split undercuts in which a piece is the stage.
using TimeOfStage = std::function<Ns(int stage, const Piece& piece)>;

// Returns a step time that no split undercuts: 0 where there are too many pieces to look at, and `limit` instead of
// more. Adds to `looked` what it looked at. Throws TimeIsUp.
//
// A split makes the step as long as the longest of many times, each of which is a sum over its stages: the time of a
// stage; or, of a device, what its list has from the first F of one stage, which waits for a path of layers, to
// the last backward of another, behind which a path back remains, or to the updates. Weights that add up to 1 make one
// time of all these, which is no longer than the longest. The split for which it is least follows by dynamic
// programming over the cuts, and bounds every split. Then the weights move towards what is long in that split
// (multiplicative weights: Arora, Hazan, Kale 2012, section 3.2); the greatest bound counts.
Ns bound_of_devices(const Plan& plan, const PlanBound& bound, const Pieces& pieces, const StageSpace& space,
                    const TimeOfStage& time_of, Ns limit, std::int64_t& looked, Deadline& deadline);

}  // namespace pw
