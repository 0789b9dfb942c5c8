// Cuts a chain of layers into consecutive stages of which a device holds several.
#pragma once

#include "workloads/units.h"

#include <vector>

namespace pw {

struct StageHolders {
    std::vector<int> device_of;  // stage -> device
    std::vector<double> speed;   // by device: its layers take time / speed
};

// Returns the first layer of each stage; no stage is empty. `time` has a layer or more for every stage.
//
// Minimises the time of the busiest device, then that of the longest stage. That is as hard as bin packing: chains with
// few ways to cut them are searched through, within 2 % of the least; otherwise layers are shifted along the stages
// until no chain of shifts helps.
//
// Looped stages (d, d + p, d + 2p, ... on device d) form rounds: devices work in one round at a time, at the pace of
// its longest stage. They are also cut in a second way, which minimises the sum of the squares of these longest stages;
// their sum bounds the time of a device. Layers are then shifted from the busiest device as long as no round gets
// longer. The result is the way for which the busiest device and the longest stages of all rounds together take less;
// of equals, the second. Chains of more layers than kMostCandidates are cut into rounds at this many places, and near
// those that are found.
inline constexpr int kMostCandidates = 128;
std::vector<int> balance_devices(const std::vector<Ns>& time, const StageHolders& holders);

}  // namespace pw
