// The machine that a process runs on: its cores, its memory, and the NUMA nodes of its devices.
#pragma once

#include "exec/memory.h"
#include "workloads/units.h"

#include <memory>
#include <string>
#include <vector>

namespace pw {

struct UsableCore {
    int number = 0, node = -1;  // the system's number of the core, and its NUMA node
};
// Returns the cores that this process may use. The first thread of every physical core comes first.
std::vector<UsableCore> usable_cores();

// Returns the NUMA node of the device at an address of the PCI bus, or -1 if the system does not have it. `folder`
// has a folder for every device.
int numa_node_of(std::string address, const std::string& folder = "/sys/bus/pci/devices");

void pin_this_thread(const std::vector<int>& cores);  // best effort (an empty list leaves the thread alone)
// Returns whether the system lets this thread run on these cores. The thread's own cores do not change.
bool can_pin_this_thread(const std::vector<int>& cores);

// Reserves memory of the system. With `touched` it is in huge pages if the system grants them, and is zeroed on the
// calling thread. Otherwise the system allocates pages at their first use. Throws Error (RunFailed) with `whose`
// and the bytes if the system refuses.
std::unique_ptr<Memory> host_memory(Bytes bytes, const std::string& whose, bool touched);

// Returns the resident memory of this process, with its libraries and shared pages, or 0 if the system does not
// report it.
Bytes resident_memory();
// From now on freed memory stays with the process for its next allocations: fresh pages of the system take more
// time than writing to them does. To be called at the start of a program.
void keep_freed_memory();

// Returns a name of the clock that clock_now() reads: processes with the same name read the same clock.
std::string clock_name();

std::string machine_name();  // "Intel(R) Xeon(R) Processor, 2 cores"

}  // namespace pw
