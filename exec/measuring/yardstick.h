// A fixed piece of work that no library changes: how long it takes says how fast the machine is at the moment.
#pragma once

#include "workloads/units.h"

#include <vector>

namespace pw {

struct CorePlan;  // exec/engine/pin.h

// Computes a product of matrices and goes through memory, about 20 ms in all, on the cores of every device at once.
// Returns the time of the slowest.
Ns yardstick_time(const CorePlan& cores);

// Keeps times of the yardstick, and tells what they have in common.
struct Yardstick {
    std::vector<Ns> times = {};
    Ns median() const;  // 0 when there are no times
    Ns spread() const;  // p90 - p10
};

}  // namespace pw
