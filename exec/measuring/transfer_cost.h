// The cost of a message between two devices that compute on the host.
#pragma once

#include "exec/backends.h"

namespace pw {

// Measures the cost on two threads of this process. measure_transfer_cost() calls it for backends on the host.
TransferCost measure_host_transfer_cost(const Setup& setup);

}  // namespace pw
