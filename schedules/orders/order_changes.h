// Shortens an order by exceptions from the rules by which it was scheduled. Exceptions are drawn, most of them where
// the step waits. A change is kept unless it makes the order longer, and longer than the order was some changes ago
// ("The late acceptance Hill-Climbing heuristic", Burke and Bykov 2017).
#pragma once

#include "schedules/orders/list_scheduling.h"
#include "schedules/orders/order_model.h"

namespace pw {

// An order, and how long a step takes with it.
struct TimedOrder {
    PassLists lists;
    StepTimes times;
};

// Makes exceptions from the rules by which `order` was scheduled, and schedules it again with each. Returns the
// shortest order of all, `order` or better, after this number of changes, or once its times by the aim are not above
// `least`.
TimedOrder with_exceptions(const OrderModel& model, OrderTimer& timer, TimedOrder order, const OrderRules& rules,
                           const StepTimes& least, Aim aim, int changes);

}  // namespace pw
