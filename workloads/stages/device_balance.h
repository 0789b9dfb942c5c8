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
// The busiest device takes the least time that was found, then the longest stage. That is as hard as packing bins:
// chains with few ways to cut them are searched through, within 2 % of the least; else layers are shifted along the
// stages until no chain of shifts helps.
//
// Looped stages (d, d + p, d + 2p, ... on device d) make rounds: devices work in one round at a time, at the pace of
// its longest stage. They are also cut so that the sum of the squares of these longest stages is the least, whose sum
// limits what a device takes, and layers are shifted from the busiest device as far as no round gets longer. Of both
// ways the one is taken where the busiest device and the longest stages of all rounds take less together; of equals,
// the second. Chains of more layers than kMostCandidates are cut into rounds at this many places, and near those that
// are found.
inline constexpr int kMostCandidates = 128;
std::vector<int> balance_devices(const std::vector<Ns>& time, const StageHolders& holders);

}  // namespace pw
