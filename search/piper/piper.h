// Piper's split: stages with replicas, tensor degrees and recomputed layers, so that the slowest stage takes the least
// time per micro-batch. A stage on d groups of t devices, with S replicas in it and later stages, keeps
// y = ceil(S / d) micro-batches in flight:
//     memory = sum(memory_each y + memory), at most a device's memory
//     time = sum(time) / d + [ sum 2 (edge + sync) / d over edges that leave it + sum 4 (d - 1) parameters / d / N ] /
//     B
// where d divides the N micro-batches of a batch, the d t add up to the devices at most, and the d to N at most.
#pragma once

#include "search/deadline.h"
#include "search/partition.h"
#include "search/piper/piper_instance.h"

namespace pw {

struct PiperChoices {
    bool tensor_parallel = true, data_parallel = true;
    bool recompute = true;  // whether layers may be recomputed
};

// Finds the best split. The search is exact, recomputation included, unless a limit stops it. Then the lower bound
// holds for layers recomputed in part, or is less. When nothing fits, the result has no stages, and the shortage of the
// split that needs the least memory per device.
Partition piper_partition(const PiperInstance& instance, const PiperChoices& choices = {},
                          const SearchLimits& limits = {});

}  // namespace pw
