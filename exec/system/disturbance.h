// Tells whether other programs had a part of the machine while something was measured: then times are not comparable.
#pragma once

#include "workloads/units.h"

#include <string>
#include <vector>

namespace pw {

// A clock of one thread: share() is the share of the time it computed in which it had a core. Waiting does not count,
// awake or asleep.
class CoreClock {
public:
    void start();
    void stop();
    double share() const;  // 1 when nothing was timed
private:
    Ns had_ = 0, passed_ = 0;
    Ns had_before_ = 0, passed_before_ = 0;
};

// The time of all cores that the host of this virtual machine gave to others since the object was made, as a share
// (/proc/stat: steal). The share is 0 where that is not known.
class StolenTime {
public:
    StolenTime();
    double share() const;

private:
    double stolen_ = 0, all_ = 0;  // in ticks
};

inline constexpr double kQuietShare = 0.9;  // of its core that an undisturbed thread gets: interrupts take little

struct Disturbance {
    std::vector<double> cpu_share = {};  // per device; empty where devices do not compute on this machine's cores
    double stolen = 0;
    bool shared_cores = false;  // there are fewer cores than the devices ask for
};

// Returns lines for people that say what makes the times incomparable; there are none on a quiet machine.
std::vector<std::string> warnings_of(const Disturbance& disturbance);
// Returns the same about measured times whose spreads (p90 - p10) add up to `spread` beside medians that add up to
// `median`.
std::vector<std::string> warnings_of_spread(Ns median, Ns spread);

}  // namespace pw
