// Times that no order of a plan's passes can beat.
#pragma once

#include "schedules/orders/order_model.h"

namespace pw {

// Returns lower bounds for every order that keeps the limits of the model.
StepTimes least_times(const OrderModel& model);

}  // namespace pw
