// A search through all orders of a small plan.
#pragma once

#include "schedules/orders/order_model.h"

namespace pw {

struct AllOrdersAnswer {
    bool none = false;     // it is proven that no order takes that little
    PassLists lists = {};  // one that does; empty if none was found
};

// Seeks an order that takes at most `most` by the aim. Stages are in a chain with one device each, which may have
// several, and micro-batches are equally long; otherwise, and for many passes, there is no answer. Orders of F, I and W
// are tried, depth first, with all waits that may be of use. A rest is left out if the work of a device, or the way
// back to the first stage from its last F or I, is too long for the time that is left, or if it was tried before with
// as much time. It gives up after `tries` passes and waits.
AllOrdersAnswer search_all_orders(const OrderModel& model, Aim aim, Ns most, int tries);

}  // namespace pw
