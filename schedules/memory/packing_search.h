// Searches for offsets of buffers below a limit, in the order of their starts. Only packing.cpp uses it.
#pragma once

#include "workloads/costs/costs.h"

#include <vector>

namespace pw {

// A buffer that lives from position `first` to the end of position `last`.
struct LiveRange {
    Bytes bytes;
    int first, last;
};

// Gives each buffer an offset such that it ends at `limit` or below. The buffers are in the order of their starts. Of
// all packings of the first few buffers, the `width` best are kept while the next one is placed: those whose neighbours
// end at the same time, so that they leave few gaps. Time grows with the number of buffers, with the number that live
// at the same time, and with `width`. Returns the offsets, or nothing if no packing is left; another width may still
// find one.
std::vector<Bytes> offsets_below(const std::vector<LiveRange>& buffers, Bytes limit, int width);

}  // namespace pw
