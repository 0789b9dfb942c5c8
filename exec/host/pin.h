// Which cores a device's threads run on.
#pragma once

#include <string>
#include <vector>

namespace pw {

// Cores for every device, `threads` each, different physical cores first, within what this process
// may use. When there are not enough, devices share them and `shared` says so.
struct CorePlan {
    std::vector<std::vector<int>> cores;  // [device]; logical numbers of the system
    bool shared = false;
};
CorePlan plan_cores(int devices, int threads);

void pin_this_thread(const std::vector<int>& cores);  // best effort; empty: leaves it alone

std::string machine_name();  // "Intel(R) Xeon(R) Processor, 2 cores"

}  // namespace pw
