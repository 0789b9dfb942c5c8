// Sharing out devices among stages, where trying every way would take too long.
#pragma once

#include "search/deadline.h"
#include "search/plans/stage_space.h"

#include <functional>
#include <limits>
#include <vector>

namespace pw {

// Returns a step time that no plan undercuts in which some stage is this piece and lives on so many devices; it is
// never more on more devices. It is the largest Ns when the piece does not fit.
using TimeOn = std::function<Ns(int replicas, const Piece& piece)>;

// Returns a step time that no split and no sharing out of the devices among the stages undercuts. The fewest devices
// that keep every stage within a time follow by dynamic programming over the cuts; the time by bisection between two:
// `below`, which no sharing undercuts, and `above`, where a search for one begins. It is kNeverShared when no sharing
// holds every stage. Throws TimeIsUp.
inline constexpr Ns kNeverShared = std::numeric_limits<Ns>::max() / 4;
Ns bound_of_sharing(const Pieces& pieces, int stages, int devices, const TimeOn& time_on, Ns below, Ns above,
                    Deadline& deadline);

// Shares out all devices among these stages: each gets one, and the next one always goes to the slowest.
std::vector<int> shares_by_time(const std::vector<const Piece*>& stages, int devices, const TimeOn& time_on);

}  // namespace pw
