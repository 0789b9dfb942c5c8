// Where buffers can lie below a limit, looked for in the order of their births. Only packing.cpp asks.
#pragma once

#include "workloads/costs/costs.h"

#include <vector>

namespace pw {

// Lives from position `first` to the end of position `last`.
struct Living {
    Bytes bytes;
    int first, last;
};

// Gives each of the buffers, which stand in the order of their births, a place that ends at `limit` or below. Of all
// ways to place the first few, the `width` best are kept while the next one is placed: those whose neighbours die
// together, so that what they leave is in few pieces. Time grows with the number of buffers, with how many of them live
// together, and with `width`. Returns the offsets, or nothing when no way is left: another width may still find one.
std::vector<Bytes> places_below(const std::vector<Living>& buffers, Bytes limit, int width);

}  // namespace pw
