// The share of the machine that other programs used during a measurement: if it is large, times are not comparable.
#pragma once

#include "workloads/units.h"

#include <string>
#include <vector>

namespace pw {

// A clock of one thread: share() is the share of its computing time in which it had a core. Waiting does not count,
// neither spinning nor sleeping.
class CoreClock {
public:
    void start();
    void stop();
    double share() const;  // 1 when nothing was timed
private:
    Ns had_ = 0, passed_ = 0;
    Ns had_before_ = 0, passed_before_ = 0;
};

// The share of the time of all cores that the host of this virtual machine has given to other systems since the object
// was made (/proc/stat: steal). The share is 0 if the system does not report it.
class StolenTime {
public:
    StolenTime();
    double share() const;

private:
    double stolen_ = 0, all_ = 0;  // in ticks
};

inline constexpr double kQuietShare = 0.9;  // an undisturbed thread's share of its core, without interrupts

struct Disturbance {
    std::vector<double> cpu_share = {};  // by device (empty if devices do not compute on this machine's cores)
    double stolen = 0;
    bool shared_cores = false;  // there are fewer cores than the devices need
};

// Returns warnings, a line each, that say why the times are not comparable. There are none on a quiet machine.
std::vector<std::string> warnings_of(const Disturbance& disturbance);
// Returns such warnings for measured times: `spread` is the sum of their spreads (p90 - p10), `median` the sum of
// their medians.
std::vector<std::string> warnings_of_spread(Ns median, Ns spread);

}  // namespace pw
