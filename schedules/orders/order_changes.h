// Shortens an order by small changes. Changes are drawn, most of them where the step waits. One is kept unless the
// order gets longer by it, and longer than it was some changes ago ("The late acceptance Hill-Climbing heuristic",
// Burke and Bykov 2017).
#pragma once

#include "schedules/orders/list_scheduling.h"
#include "schedules/orders/order_model.h"

namespace pw {

// An order, and how long a step takes with it.
struct TimedOrder {
    PassLists lists;
    StepTimes times;
};

// Both functions return the shortest order of all, `order` or better, after this number of changes, or once its times
// by the aim are not above `least`.

// Takes single passes to other places in the lists of their devices.
TimedOrder moved(const OrderModel& model, OrderTimer& timer, TimedOrder order, const StepTimes& least, Aim aim,
                 int changes);
// Makes exceptions from the rules by which `order` was scheduled, and schedules it again with each.
TimedOrder with_exceptions(const OrderModel& model, OrderTimer& timer, TimedOrder order, const OrderRules& rules,
                           const StepTimes& least, Aim aim, int changes);

}  // namespace pw
