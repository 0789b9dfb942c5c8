// Times by which a pass over a plan may place tasks.
#pragma once

#include "schedules/plan/task.h"
#include "workloads/units.h"

#include <functional>

namespace pw {

// How long tasks take on a device, and messages from one task to another on the way. Absent where it is not known: then
// B takes two, all others that compute one, and messages nothing.
struct KnownTimes {
    std::function<Ns(const Task& task, int device)> task = {};
    std::function<Ns(const Task& from, int sender, const Task& to, int receiver)> message = {};
};

}  // namespace pw
