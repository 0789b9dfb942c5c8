// Sharing out devices among stages, where trying every way would take too long.
#pragma once

#include "search/deadline.h"
#include "search/stage_space.h"

#include <functional>
#include <vector>

namespace pw {

struct Balance {
    Ns bound = 0;               // step time that no split and no sharing out of the devices undercuts
    std::vector<int> replicas;  // per stage, of a sharing that comes near it; empty: no device holds its stage
};

// Step time that no plan undercuts in which some stage is this piece and lives on so many devices; never more on more
// devices. The largest Ns: the piece does not fit.
using TimeOn = std::function<Ns(int replicas, const Piece& piece)>;

// The fewest devices that keep every stage within a time follow by dynamic programming over the cuts; the time by
// bisection between two that are known: `below`, which no sharing undercuts, and `above`, where one is. Throws TimeIsUp.
Balance balance_of(const Pieces& pieces, int stages, int devices, const TimeOn& time_on, Ns below, Ns above,
                   Deadline& deadline);

}  // namespace pw
