// How fast a device copies to the memory of its host.
#pragma once

#include "exec/kernels.h"
#include "workloads/cluster/link.h"

namespace pw {

// Times copies of a small and of a large block in both directions, and returns the link of the slower direction.
Link measure_host_link(const Kernels& kernels);

}  // namespace pw
