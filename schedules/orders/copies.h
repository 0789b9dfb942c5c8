// Copies of a whole pipeline: data parallelism of any schedule that flushes. The k-th of r copies serves micro-batches
// k, k + r, ... of all stages, and its device d is device d * r + k of the shape.
#pragma once

#include "schedules/orders/schedule.h"

namespace pw {

// Returns the placed shape of one copy with its own devices and micro-batches, both numbered from 0. Without copies
// that is the shape itself.
Shape copy_of(const Schedule& schedule, const Shape& shape, int copy);

// Returns for each list of devices of one pipeline those of all copies: of each device, its copies.
std::vector<std::vector<int>> on_copies(const std::vector<std::vector<int>>& devices, int copies);

// Throws what Placement::check throws, with the number of the copy.
void check_copies(const Schedule& schedule, const Shape& shape);

// Returns the orders of all devices of a placed shape. Throws what Schedule::orders throws, with the number of the
// copy.
std::vector<Tasks> orders_of(const Schedule& schedule, const Request& request);

}  // namespace pw
