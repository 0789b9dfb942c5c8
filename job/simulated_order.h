// What the simulator says of the orders that a schedule by costs considers.
#pragma once

#include "schedules/orders/order_costs.h"
#include "schedules/orders/schedule.h"
#include "workloads/costs/costs.h"

#include <vector>

namespace pw {

// Simulates one step of a synchronous plan. `memory` has the memory of each device.
SimulatedOrder simulated_order(const ProvenPlan& proven, const Costs& costs, TransferMode mode,
                               const std::vector<Bytes>& memory);

}  // namespace pw
