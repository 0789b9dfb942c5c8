// A time that no order of a line of stages can beat under tight memory.
#pragma once

#include "schedules/orders/order_model.h"

namespace pw {

// Returns a lower bound of step and span, at most `found`, for stages in a line with a device each, which all
// micro-batches take forward and back; otherwise 0. An order that takes `found` is known: a shorter one is sought in a
// relaxed decision diagram (Bergman, Cire, van Hoeve, Hooker, Decision Diagrams for Optimization, 2016, chapter 4).
//
// Where a micro-batch is under way when the next one starts, there is a stage up to which F of the next one runs before
// I of the first, and from which on it runs after it. Each choice of these stages gives times for F and I, without W of
// other micro-batches. A layer of the diagram has a state per choice, and what is too many is merged by the least of
// all times.
Ns least_time_by_crossings(const OrderModel& model, Ns found);

}  // namespace pw
