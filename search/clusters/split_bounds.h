// Bounds on a choice with any numbers of blocks on its stages, and the numbers that balance its devices.
#pragma once

#include "job/setup/setup.h"
#include "search/clusters/block_room.h"
#include "search/clusters/cluster_bounds.h"
#include "workloads/costs/costs.h"

#include <vector>

namespace pw {

struct SplitBounds {
    Ns step_time = 0;  // no split has a shorter step (0 if none fits)
    bool may_fit = false;
    // The balanced numbers, and about how much shorter they make the step. Empty if that is less than the time of a
    // block: then no move of a block shortens the longest device.
    std::vector<int> balanced = {};
    Ns gain = 0;
};

// Returns all numbers in which a single block is on another stage and the longest device is no longer. The numbers with
// the shortest longest device come first. `seed` shuffles equally good numbers. Empty if a stage has several devices.
std::vector<std::vector<int>> moves_of(const std::vector<int>& blocks, const OrderFacts& facts, const Costs& costs,
                                       const SplitParts& parts, const std::vector<DeviceConfig>& devices,
                                       unsigned seed);

// Bounds a choice. `costs` and `fits` describe its plan with the `usual` numbers, `devices` the pipeline. The first
// stage has the embedding and the last stage the head. Any stage may be without a block.
SplitBounds bounds_of_splits(const OrderFacts& facts, const Costs& costs, const SplitParts& parts,
                             const std::vector<DeviceConfig>& devices, const std::vector<int>& usual, bool fits);

}  // namespace pw
