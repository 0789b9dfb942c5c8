// The choice between an order that was found and that of a plan in use.
#pragma once

#include "schedules/orders/schedule.h"

namespace pw {

// Returns `found` if it is shorter than `current` by the aim, or if `current` does not keep the limits; else `current`.
// Both are the compute tasks of every device, in order, of the request's shape, which has costs.
std::vector<Tasks> shorter_order(const Request& request, std::vector<Tasks> found, const std::vector<Tasks>& current);

}  // namespace pw
