// The makes of devices that a plan runs on (DeviceMake), and configs for the devices of a make.
#pragma once

#include "job/setup/setup.h"

#include <vector>

namespace pw {

// Returns the makes of the devices of the plan, by DeviceConfig::make: a device of a transformer's plan stands for
// devices of several makes. Empty if all devices are of the cluster's make and have the same degrees.
std::vector<PlanMake> makes_of_plan(const Setup& setup);

// Returns the setup as if all devices were of this make.
Setup of_make(const Setup& setup, int make);
// Returns the setup for devices that work together, with their degrees: all are of this make, but the links between
// their hosts are the slowest.
Setup of_make(const Setup& setup, int make, const PlanMake& together);

}  // namespace pw
