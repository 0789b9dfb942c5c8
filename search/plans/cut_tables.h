// The cuts of a model that make a number of the stages least, by dynamic programming.
#pragma once

#include "search/plans/stage_bounds.h"

#include <vector>

namespace pw {

using Cuts = std::vector<int>;                  // from 0 to StageSpace::whole()
using CutTable = std::vector<std::vector<Ns>>;  // [stage][cut]: least bottleneck of this and all later stages

// Returns the table of the largest number of a stage. Throws TimeIsUp, as the functions below may.
CutTable least_bottleneck(const StageBounds& bounds, const StageSpace& space, const NumberOfStage& number,
                          Deadline& deadline);

// Returns the path with the least bottleneck. Among several, the path with the cheapest stages, compared from the first
// on. Empty if no path reaches the end.
Cuts cuts_of(const CutTable& table, const StageBounds& bounds, const NumberOfStage& number);

// Returns the cuts with the work of stages as even as possible: the sum of its squares is the least. Empty if stages do
// not fit.
Cuts even_cuts(const StageBounds& bounds, const StageSpace& space, Deadline& deadline);

}  // namespace pw
