// How far a plan's order may be from the shortest order.
#pragma once

#include "job/job.h"
#include "sim/metrics.h"

#include <optional>
#include <string>

namespace pw {

struct OrderGap {
    Ns least_step = 0, least_span = 0;  // no order with this placement and memory has shorter ones
    double step = 0, span = 0;          // of the plan: (time - least) / least
    bool aims_at_span = false;
};

// Returns the gap of a plan whose schedule orders tasks by their costs. Absent for other schedules, and where the bound
// would not hold: replicas, recomputation, a smaller last micro-batch.
std::optional<OrderGap> order_gap_of(const Job& job, const Metrics& metrics);
// Returns a line such as "step at most 1.2 % above the least of all orders on these devices (812.3 ms)".
std::string to_text(const OrderGap& gap);

}  // namespace pw
