// The clocks of ranks, as far as the order of their tasks bounds them: a task begins when its input has been made, or
// later.
#pragma once

#include "schedules/trace/trace.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pw {

// By how much later than one device's clock another device's clock must be set.
struct ClockBound {
    Ns least;
    const TraceEvent *made, *read;  // the pair that needs most
};
using ClockBounds = std::map<std::pair<int, int>, ClockBound>;  // devices: that makes a tensor, and that reads it

ClockBounds clock_bounds(const std::vector<TraceEvent*>& events);

// Returns for each device the least time, never negative, by which to move the device later so that all bounds hold.
// Returns nothing if no times satisfy all bounds.
std::optional<std::vector<Ns>> clock_moves(const ClockBounds& bounds, int devices);

// By how much the clock of a device could be earlier or later than it is taken to be while no task begins before its
// input has been made.
struct ClockRange {
    Ns earlier = 0, later = 0;  // kUnbounded: nothing bounds it
    Ns width() const { return earlier / 2 + later / 2; }
};
inline constexpr Ns kUnbounded = Ns{1} << 62;

// Returns the range of each device against the clock of device 0, after its move. All devices may move at once: a
// range is the shortest path over the slack of the bounds.
std::vector<ClockRange> clock_ranges(const ClockBounds& bounds, const std::vector<Ns>& moves);
std::string print(const ClockRange& range);  // "-300.0 us to +2.100 ms"

}  // namespace pw
