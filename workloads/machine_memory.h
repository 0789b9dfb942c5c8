// What this process may take of the machine's memory.
#pragma once

#include "workloads/units.h"

#include <string>

namespace pw {

// Returns the least of the memory of the machine, what the limits of the process's control groups leave, and what
// `ulimit -v` and `ulimit -d` leave it. It is looked up once.
Bytes memory_of_machine();

// Returns what is left of the limits of the control groups under `root` (/sys/fs/cgroup) that `own` (/proc/self/cgroup)
// names, and of the groups that they are in: the least limit less what the group's processes use. Caches of files do
// not count. A group whose use cannot be read has its whole limit. Versions 1 and 2 of control groups; without any
// limit, the largest number.
Bytes memory_left_in_groups(const std::string& root, const std::string& own);

// Returns the memory for a plan and all that is worked out from it: half of that.
Bytes memory_for_plans();

}  // namespace pw
