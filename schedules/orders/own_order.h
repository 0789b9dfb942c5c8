// The order of micro-batches of unequal length, where the schedule may choose it.
#pragma once

#include "schedules/orders/schedule.h"

#include <functional>
#include <vector>

namespace pw {

// Finds the order of the tasks of a request whose micro-batches have the order of their lengths.
using OrderTasks = std::function<std::vector<Tasks>(const Request& request)>;

// Returns the tasks of a request whose costs have lengths in the best order of its micro-batches that is found: the
// given order, an order by length, an order with the longest or the shortest micro-batches in the middle, or an order
// made from the best of these by exchanges of two, as long as they help.
std::vector<Tasks> in_own_order(const Request& request, const OrderTasks& order);

}  // namespace pw
