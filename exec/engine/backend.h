// One device and its links, as the executor loop sees them.
#pragma once

#include "schedules/task.h"
#include "workloads/units.h"

#include <span>

namespace pw {

// Number of a launch on this device, from 0 in each step.
using Ticket = int;

// When a task really ran, in nanoseconds of the run's clock.
struct Interval {
    Ns start = 0, end = 0;
};

// launch() may run ahead of the device; only all_launched() waits for it. A host device works in
// launch() itself, which then waits for the receives among `after`.
class Backend {
public:
    virtual ~Backend() = default;
    virtual void begin_step(int step) = 0;
    // `position` in the device's list. `after`: tickets of this device's tasks that must be done first.
    virtual Ticket launch(const Task& task, int position, std::span<const Ticket> after) = 0;
    virtual void all_launched() {}  // of this step: waits until all is done
    virtual Interval finish(Ticket ticket) = 0;  // after that
};

}  // namespace pw
