// What a plan offloads to the memory of the hosts, and when.
#pragma once

#include <vector>

namespace pw {

struct Offloading {
    std::vector<int> stages = {};  // ascending. What their F saves of offloaded layers leaves the device until B
    // The number of further tasks of the device during which a copy may run: the first task after them waits for an
    // OFFLOAD, and a RELOAD begins this number of tasks before its backward. With more, copies have more time and more
    // micro-batches are on their way. A micro-batch stays where its memory would be free during no task.
    int ahead = 1;
    std::vector<int> states = {};  // ascending. The optimizer states leave their devices between two U
    int states_ahead = 1;          // the same of copies of states. The first begins with the step
    bool is_empty() const { return stages.empty() && states.empty(); }
    bool operator==(const Offloading&) const = default;
};

}  // namespace pw
