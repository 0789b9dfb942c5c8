// The memory that this process may use.
#pragma once

#include "workloads/units.h"

#include <string>

namespace pw {

// Returns the least of the memory that the machine has left for new programs and the memory left by the limits of the
// process's control groups and by `ulimit -v` and `ulimit -d`. It is determined once.
Bytes memory_of_machine();

// Returns the memory for new programs without swapping, as `facts` (/proc/meminfo) estimates it: caches of files count
// as free. Without an estimate, the machine's memory.
Bytes memory_left_in_system(const std::string& facts);

// Returns the memory left by the control groups under `root` (/sys/fs/cgroup) that `own` (/proc/self/cgroup) names, and
// by their parents: the least of limit minus memory in use. Caches of files do not count. A group whose use cannot be
// read has its whole limit. Versions 1 and 2 of control groups. Without any limit, the largest number.
Bytes memory_left_in_groups(const std::string& root, const std::string& own);

// Returns the memory for a plan and everything that is computed from it: half of that.
Bytes memory_for_plans();

}  // namespace pw
