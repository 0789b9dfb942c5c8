// Orders for devices with several stages: groups of micro-batches go through the stages in turn.
#pragma once

#include "schedules/orders/holding.h"

#include <functional>
#include <vector>

namespace pw {

struct VirtualMicrobatch {
    int chunk, microbatch;
};
std::vector<VirtualMicrobatch> virtual_microbatches(int chunks, int microbatches, int group);

// Appends groups of micro-batches, stage by stage within a group, with the stages in opposite order for backwards:
// first `ahead` forwards, then a forward and a backward alternately.
using BackwardOf = std::function<void(int stage, int microbatch)>;
void interleave_stages(const Holding& own, int group, int ahead, Tasks& order, const BackwardOf& backward);

// Returns the micro-batches per group: by PyTorch's rule, or by Megatron's if options.group is set. Throws Error
// (BadInput) with the nearest legal values.
int group_size(const Shape& shape, const ScheduleOptions& options);

}  // namespace pw
