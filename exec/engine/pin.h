// The choice of the cores on which a device's threads run.
#pragma once

#include "exec/engine/machine.h"

#include <vector>

namespace pw {

// The cores of every device, `threads` each, among the cores of this process, different physical cores first.
// If there are not enough, devices share cores and `shared` is true.
struct CorePlan {
    std::vector<std::vector<int>> cores;  // [device], logical numbers of the system
    bool shared = false;
};
// `nodes` has for every device the NUMA node of its cores, as far as the node has enough. Beyond the end of the
// list, and for -1, any node is used.
CorePlan plan_cores(int devices, int threads, const std::vector<int>& nodes = {});

// Does the same with the given cores, in order of preference.
CorePlan plan_cores(const std::vector<UsableCore>& usable, int devices, int threads, const std::vector<int>& nodes);

}  // namespace pw
