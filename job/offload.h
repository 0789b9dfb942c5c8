// What a setup offloads to the memory of the hosts.
#pragma once

#include "job/setup/setup.h"
#include "workloads/costs/costs.h"

namespace pw {

// Throws Error (BadInput) at the key if no link to the hosts is known.
void check_offload(const Setup& setup, const Profile& profile);

// Makes all that the F of the offloaded stages of a uniform workload saves leave the device.
void offload_stages(Costs& costs, const Setup& setup);

// Leaves the rest of PipelineConfig::offload_share on the device.
void offload_in_part(Costs& costs, const Setup& setup);

}  // namespace pw
