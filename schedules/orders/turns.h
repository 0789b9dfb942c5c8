// Devices with several stages that take turns: groups of micro-batches go through one stage after the other.
#pragma once

#include "schedules/orders/holding.h"

#include <functional>
#include <vector>

namespace pw {

struct Turn {
    int chunk, microbatch;
};
std::vector<Turn> turns_in_groups(int chunks, int microbatches, int group);

// Runs groups of micro-batches, in a group stage after stage, backwards in the opposite order of stages: `ahead`
// forwards, then one forward and one backward in turn.
using BackwardOf = std::function<void(int stage, int microbatch)>;
void take_turns(const Holding& own, int group, int ahead, Tasks& order, const BackwardOf& backward);

// Returns the micro-batches per group: without options.group by PyTorch's rule, with it by Megatron's; throws Error
// (BadInput) with the nearest legal values.
int group_size(const Shape& shape, const ScheduleOptions& options);

}  // namespace pw
