// A search through all orders of a small plan.
#pragma once

#include "schedules/orders/order_model.h"

namespace pw {

struct AllOrdersAnswer {
    bool none = false;     // it is proven that no order takes that little
    PassLists lists = {};  // an order that does, empty if none was found
};

// Seeks an order that takes at most `most` by the aim. Stages are in a chain, a device may have several stages, each
// stage is on a single device, and micro-batches are equally long. In all remaining cases, and for many passes, there
// is no answer. Orders of F, I and W are tried, depth first, with all waits that may be of use. A rest is left out if
// the work of a device, or the way back to the first stage from its last F or I, is too long for the time that is left,
// or if the rest was tried before with as much time. The search gives up after `tries` passes and waits.
AllOrdersAnswer search_all_orders(const OrderModel& model, Aim aim, Ns most, int tries);

}  // namespace pw
