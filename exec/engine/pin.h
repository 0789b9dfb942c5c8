// Decides on which cores a device's threads run.
#pragma once

#include "exec/engine/machine.h"

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
CorePlan plan_cores(const std::vector<UsableCore>& usable, int devices, int threads, const std::vector<int>& nodes);

}  // namespace pw
