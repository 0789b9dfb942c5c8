// Shortens an order by moving single passes within the lists of their devices.
#pragma once

#include "schedules/orders/order_model.h"

namespace pw {

// An order, and how long a step takes with it.
struct TimedOrder {
    PassLists lists;
    StepTimes times;
};

// Moves passes that the step waits for, keeps what is no longer than it was some moves ago (late acceptance hill
// climbing, Burke and Bykov 2017), and returns the shortest order of all, `order` or better. `moves` is the number of
// moves that are timed. Stops at an order whose times, by `is_shorter`, are not above `least`.
TimedOrder improved(const OrderModel& model, OrderTimer& timer, TimedOrder order, const StepTimes& least, Aim aim,
                    int moves);

}  // namespace pw
