// What this process may take of the machine's memory.
#pragma once

#include "workloads/units.h"

namespace pw {

// Returns the least of the memory of the machine, of the process's control group, and what `ulimit -v` and `ulimit -d`
// leave it. It is looked up once.
Bytes memory_of_machine();

// Returns the memory for a plan and all that is worked out from it: half of that.
Bytes memory_for_plans();

}  // namespace pw
