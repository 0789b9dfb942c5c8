// What a message between two devices costs that compute on the host.
#pragma once

#include "exec/backends.h"

namespace pw {

// Measures it on two threads of this process, as measure_transfer_cost() needs it.
TransferCost measure_host_transfer_cost(const Config& config);

}  // namespace pw
