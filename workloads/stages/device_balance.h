// Cuts a chain of layers into consecutive stages of which a device holds several.
#pragma once

#include "workloads/units.h"

#include <vector>

namespace pw {

struct StageHolders {
    std::vector<int> device_of;  // stage -> device
    std::vector<double> speed;   // by device: its layers take time / speed
};

// Returns the first layer of each stage. No stage is empty. `time` has at least as many layers as there are stages.
//
// Minimises the time of the busiest device, then the time of the longest stage. That is as hard as bin packing. Chains
// with few possible cuts are searched through, within 2 % of the least. In the rest of the chains, layers are shifted
// along the stages until no chain of shifts helps.
//
// Looped stages (d, d + p, d + 2p, ... on device d) form rounds: devices work in one round at a time, at the pace of
// its longest stage. Looped stages are also cut in a second way, which minimises the sum of the squares of these
// longest stages, whose sum bounds the time of a device. Layers are then shifted from the busiest device as long as no
// round gets longer. The result is the way for which the busiest device and the longest stages of all rounds together
// take less, or the second way if both take the same. Chains of more layers than kMostCandidates are cut into rounds at
// this many places, and near the places that are found.
inline constexpr int kMostCandidates = 128;
std::vector<int> balance_devices(const std::vector<Ns>& time, const StageHolders& holders);

}  // namespace pw
