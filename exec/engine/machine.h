// The machine that a process runs on: its cores, and where its devices are.
#pragma once

#include <string>
#include <vector>

namespace pw {

struct UsableCore {
    int number = 0, node = -1;  // of the system's; of NUMA
};
// Returns the cores that this process may use; the first thread of every physical core comes first.
std::vector<UsableCore> usable_cores();

// Returns the NUMA node that the system says a device on the PCI bus is on, or -1 where it does not know. `folder` has
// a folder for every device.
int numa_node_of(std::string address, const std::string& folder = "/sys/bus/pci/devices");

void pin_this_thread(const std::vector<int>& cores);  // best effort; an empty list leaves the thread alone

// Names the clock that clock_now() reads: processes that give it the same name read the same one.
std::string clock_name();

std::string machine_name();  // "Intel(R) Xeon(R) Processor, 2 cores"

}  // namespace pw
