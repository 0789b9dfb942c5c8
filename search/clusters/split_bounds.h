// Bounds on a choice with any numbers of blocks on its stages, and the numbers that balance its devices.
#pragma once

#include "job/config/config.h"
#include "search/clusters/cluster_bounds.h"
#include "workloads/costs/costs.h"

#include <vector>

namespace pw {

// What splits divide: the costs of a pipeline whose stages are the embedding, the first block, the other blocks, and
// the head, all on device 0.
struct SplitParts {
    Costs costs;
    int blocks = 0;
    Bytes least_saved = 0, first_saved = 0;  // by one block until I: of all blocks the least, and of the first one
};

struct SplitBounds {
    Ns step_time = 0;  // no split has a shorter step
    bool may_fit = false;
    // The balanced numbers, and about how much shorter they make the step. Empty if that is less than the time of a
    // block: then no move of a block shortens the longest device.
    std::vector<int> balanced = {};
    Ns gain = 0;
};

// Returns all numbers that differ by one block on another stage and do not make the longest device longer; those with
// the shortest one first, equally good ones in an order that `seed` draws. Empty if a stage has several devices.
std::vector<std::vector<int>> moves_of(const std::vector<int>& blocks, const OrderFacts& facts, const Costs& costs,
                                       const SplitParts& parts, const std::vector<DeviceConfig>& devices,
                                       unsigned seed);

// `costs` are the choice's with as equal numbers as possible, which fit or not; `devices` are those of the pipeline.
// The embedding is on the first stage and the head on the last one, which may have no block; all others have one.
SplitBounds bounds_of_splits(const OrderFacts& facts, const Costs& costs, const SplitParts& parts,
                             const std::vector<DeviceConfig>& devices, bool fits);

}  // namespace pw
