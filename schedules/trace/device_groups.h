// The devices of a trace in groups: by host, by process, by replica of the pipeline.
#pragma once

#include "schedules/trace/trace.h"

#include <string>
#include <vector>

namespace pw {

struct DeviceGroups {
    std::string kind;                // "host"
    std::vector<std::string> names;  // of the groups, in the order of their first devices
    std::vector<int> of;             // device -> group
};

// Returns the hosts of the devices, or no groups if they are not known.
DeviceGroups hosts_of_devices(const Trace& trace);

// Returns the kinds of groups that tell something: with two groups or more, of which one has several devices. Devices
// are of the same replica if they run the same micro-batch, or if other devices join them so.
std::vector<DeviceGroups> groups_of(const Trace& trace);

}  // namespace pw
