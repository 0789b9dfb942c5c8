// What a message between two ranks costs.
#pragma once

#include "exec/ranks/ranks.h"
#include "workloads/costs/link.h"

namespace pw {

// All ranks call it together. Rank 0 sends messages of several sizes to the last rank and gets them back, and returns
// latency, bandwidth and half size of one way; the others return what they have been told, the same.
Link measure_link(Ranks& ranks);

// Returns the link of latency `smallest` that fits times of messages by their sizes best: time = latency + (size +
// half_size) / bandwidth, by least squares of the relative errors.
struct SizedTime {
    Bytes bytes;
    Ns time;
};
Link fitted_link(Ns smallest, const std::vector<SizedTime>& times);

}  // namespace pw
