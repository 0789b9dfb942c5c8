// Schedules that are Python functions.
#pragma once

#include "schedules/orders/schedule.h"

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace pw {

// The name of a placement as in `list schedules`, or the device of each stage.
using OwnPlacement = std::variant<std::string, std::vector<int>>;

// Returns the schedule whose orders are what `function` returns for the devices, the stages, the micro-batches, the
// device of each stage, and the costs: None, or for a schedule by costs
//   the class of each micro-batch (empty: all have class 0),
//   the times of F, B, I and W in ns by stage and class, and
//   the times of messages in ns by (stage, stage) and class.
// An item of a device's list is a task, ("F", stage, micro-batch) or "3F7", or a pair of tasks. The function may be
// called on any thread. Without costs, its lists are kept by shape. Its exceptions pass through C++, except a
// pipewright.Error: the schedule is not defined for the shape, which is an Error (BadInput). Lists that are no plan of
// the shape raise a pipewright.Error in Python. Throws Error (BadInput) for the name of another schedule and for a
// placement that does not exist.
std::shared_ptr<const Schedule> own_schedule(std::string name, const OwnPlacement& placement, bool by_costs,
                                             pybind11::object function);

}  // namespace pw
