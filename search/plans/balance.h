// Sharing out devices among stages, if trying every way would take too long.
#pragma once

#include "search/deadline.h"
#include "search/plans/stage_space.h"

#include <functional>
#include <vector>

namespace pw {

// Returns a lower bound on the step time of plans in which some stage is this piece and has this many devices. The
// bound does not grow with the devices, and is the largest Ns if the piece does not fit.
using TimeOn = std::function<Ns(int replicas, const Piece& piece)>;

// Returns a lower bound on the step time over all splits and all ways to share out the devices among the stages.
// Dynamic programming over the cuts finds the fewest devices that keep every stage within a time. Bisection finds the
// time, between `below`, a lower bound, and `above`, where the search begins. Returns kNeverFits if no sharing holds
// every stage. Throws TimeIsUp.
Ns bound_of_sharing(const Pieces& pieces, int stages, int devices, const TimeOn& time_on, Ns below, Ns above,
                    Deadline& deadline);

// Shares out all devices among these stages: each stage gets a device, and every further device goes to the slowest
// stage.
std::vector<int> shares_by_time(const std::vector<const Piece*>& stages, int devices, const TimeOn& time_on);

}  // namespace pw
