// A time that no order of a line of stages can beat under tight memory.
#pragma once

#include "schedules/orders/order_model.h"

namespace pw {

// Returns a lower bound of the time from the first to the last pass of the first stage, without the update, at most
// `found`. Stages are in a line with a device each, and all micro-batches go forward and back through them. Otherwise
// returns 0. An order that takes `found` is known. A shorter order is sought in a relaxed decision diagram (Bergman,
// Cire, van Hoeve, Hooker, Decision Diagrams for Optimization, 2016, chapter 4).
//
// If a micro-batch starts before an older one has ended, its F runs before I of the older one up to some stage, and
// after that I from the next stage on. Each choice of these stages gives times for F and I. W counts only where F waits
// for its room. A layer of the diagram has a state per choice. If there are too many, some are merged into a state with
// the least of their times.
Ns least_time_by_crossings(const OrderModel& model, Ns found);

}  // namespace pw
