// Double justification: all passes as late as possible, then all as early as possible.
#pragma once

#include "schedules/orders/order_model.h"

namespace pw {

// Moves every pass, the last one first, to the latest time that ends no later than the step (or each device's span)
// does now, and then, the first one first, to the earliest time. A pass may go into idle time that is long enough, so
// that the order of a device changes; the limits are kept. It does not lengthen a step, apart from messages that wait
// for others in their lanes (V. Valls, F. Ballestin, S. Quintanilla, "Justification and RCPSP: A technique that pays",
// European Journal of Operational Research 165, 2005). Returns none for lists that wait for each other in a cycle, or
// if passes that take no time could be in an impossible order.
PassLists justified(const OrderModel& model, OrderTimer& timer, const PassLists& lists, Aim aim);

}  // namespace pw
