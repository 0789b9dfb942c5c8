// A link between two devices, and the bandwidth of a message on it.
#pragma once

#include "workloads/units.h"

#include <limits>
#include <vector>

namespace pw {

struct SizedBandwidth {
    Bytes bytes = 0;
    double bandwidth = 0;  // bytes per second, of messages of this size
    bool operator==(const SizedBandwidth&) const = default;
};

// A transfer occupies its lane for bytes / bandwidth and arrives `latency` later.
struct Link {
    Ns latency = 0;
    double bandwidth = std::numeric_limits<double>::infinity();  // bytes per second, infinite if pointers are passed
    // A message of s bytes has the bandwidth `bandwidth` * s / (s + half_size): half at this size, which is Hockney's
    // n-half (R. W. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2", 1994).
    Bytes half_size = 0;
    // Or this table, by ascending sizes. `bandwidth` is then the largest bandwidth in the table. Between two entries
    // the time is on the line through both. Before the first and after the last entry the bandwidth stays.
    std::vector<SizedBandwidth> by_size = {};
    bool operator==(const Link&) const = default;
};

inline constexpr Bytes kLargestHalfSize = Bytes{1} << 40;

// Returns the link's bandwidth for a message of `bytes`, more than 0: at most `bandwidth`.
double bandwidth_for(double bytes, const Link& link);

// Returns the time for which a message occupies its link: bytes / bandwidth, with at most `most` bytes per second.
Ns occupation_of(Bytes bytes, const Link& link, double most = std::numeric_limits<double>::infinity());

}  // namespace pw
