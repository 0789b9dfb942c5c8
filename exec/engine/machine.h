// The machine that a process runs on: its cores, its memory, and where its devices are.
#pragma once

#include "exec/memory.h"
#include "workloads/units.h"

#include <memory>
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
// Tells whether the system lets this thread run there; the thread stays where it may run now.
bool can_pin_this_thread(const std::vector<int>& cores);

// Reserves memory of the system. With `touched` it lies in huge pages where the system grants them, zeroed on the
// calling thread; else pages come as they are used. It throws Error (RunFailed) with `whose` and the bytes when the
// system refuses.
std::unique_ptr<Memory> host_memory(Bytes bytes, const std::string& whose, bool touched);

// Returns what this process has in memory now, its libraries and shared pages included; 0 where the system does not
// say.
Bytes resident_memory();
// From here on memory that is freed stays with the process, for what is allocated next: the system's fresh pages cost
// more time than writing to them does. It is for the start of a program.
void keep_freed_memory();

// Names the clock that clock_now() reads: processes that give it the same name read the same one.
std::string clock_name();

std::string machine_name();  // "Intel(R) Xeon(R) Processor, 2 cores"

}  // namespace pw
