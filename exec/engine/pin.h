// Which cores a device's threads run on.
#pragma once

#include <string>
#include <vector>

namespace pw {

// Cores for every device, `threads` each, different physical cores first, within what this process
// may use. When there are not enough, devices share them and `shared` says so.
struct CorePlan {
    std::vector<std::vector<int>> cores;  // [device]; logical numbers of the system
    bool shared = false;
};
// `nodes`: the NUMA node each device is to have its cores on, as long as it has some; none, or -1: on any.
CorePlan plan_cores(int devices, int threads, const std::vector<int>& nodes = {});

// The same on these cores, in the order in which they are preferred.
struct UsableCore {
    int number = 0, node = -1;
};
CorePlan plan_cores(const std::vector<UsableCore>& usable, int devices, int threads, const std::vector<int>& nodes);

// Of a device on the PCI bus: what the system says, -1: it does not know. `folder` has one for every device.
int numa_node_of(std::string address, const std::string& folder = "/sys/bus/pci/devices");

void pin_this_thread(const std::vector<int>& cores);  // best effort; empty: leaves it alone

std::string machine_name();  // "Intel(R) Xeon(R) Processor, 2 cores"

}  // namespace pw
