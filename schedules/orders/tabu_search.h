// Shortens an order by taking passes of a longest path to other places, whether or not each step shortens it.
#pragma once

#include "schedules/orders/order_changes.h"
#include "schedules/orders/order_model.h"

namespace pw {

// Each round takes a pass of a longest path to another place in the list of its device: to the place where the step is
// estimated to be shortest, even if that is longer than before, but not back to where the pass has been lately (tabu
// search: Nowicki and Smutnicki, "A Fast Taboo Search Algorithm for the Job Shop Problem", Management Science 42,
// 1996). The estimate is the longest path through the passes between both places (Balas and Vazacopoulos, "Guided Local
// Search with Shifting Bottleneck for Job Shop Scheduling", Management Science 44, 1998). After many rounds in vain the
// search goes on from the best order, with some passes at places drawn at random. Returns the best order, `order` or a
// shorter one, after this number of rounds, or once its times by the aim are not above `least`.
TimedOrder tabu_searched(const OrderModel& model, OrderTimer& timer, TimedOrder order, const StepTimes& least, Aim aim,
                         int rounds);

}  // namespace pw
