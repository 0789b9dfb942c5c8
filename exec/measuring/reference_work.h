// A fixed piece of work that uses no library: its time shows the current speed of the machine.
#pragma once

#include "workloads/units.h"

#include <vector>

namespace pw {

struct CorePlan;  // exec/engine/pin.h

// Multiplies matrices and reads memory, about 20 ms in total, on the cores of all devices at once. Returns the time
// of the slowest device.
Ns reference_work_time(const CorePlan& cores);

// The times of the reference work in a measurement.
struct ReferenceWork {
    std::vector<Ns> times = {};
    Ns median() const;  // 0 if there are no times
    Ns spread() const;  // p90 - p10
};

}  // namespace pw
