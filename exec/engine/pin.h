// Decides on which cores a device's threads run.
#pragma once

#include <string>
#include <vector>

namespace pw {

// The cores of every device, `threads` each, different physical cores first, within what this process may use. When
// there are not enough, devices share them and `shared` says so.
struct CorePlan {
    std::vector<std::vector<int>> cores;  // [device]; logical numbers of the system
    bool shared = false;
};
// `nodes` says for every device which NUMA node it is to have its cores on, as long as the node has some; where the
// list ends, or says -1, any node will do.
CorePlan plan_cores(int devices, int threads, const std::vector<int>& nodes = {});

// Does the same with the given cores, in the order in which they are preferred.
struct UsableCore {
    int number = 0, node = -1;
};
std::vector<UsableCore> usable_cores();  // those that this process may use
CorePlan plan_cores(const std::vector<UsableCore>& usable, int devices, int threads, const std::vector<int>& nodes);

// Returns the NUMA node that the system says a device on the PCI bus is on, or -1 where it does not know. `folder` has
// a folder for every device.
int numa_node_of(std::string address, const std::string& folder = "/sys/bus/pci/devices");

void pin_this_thread(const std::vector<int>& cores);  // best effort; an empty list leaves the thread alone

std::string machine_name();  // "Intel(R) Xeon(R) Processor, 2 cores"

}  // namespace pw
