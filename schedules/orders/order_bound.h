// Times that no order of a plan's passes can beat.
#pragma once

#include "schedules/orders/order_model.h"

namespace pw {

// Returns lower bounds for every order that keeps the limits of the model.
StepTimes least_times(const OrderModel& model);
// Returns the times of the device with the most passes and updates.
StepTimes least_work(const OrderModel& model);
// Also by where micro-batches cross, and by all orders of a small plan, if an order that takes `found` may not be the
// shortest: a fraction of a second.
StepTimes least_times(const OrderModel& model, const StepTimes& found);

}  // namespace pw
