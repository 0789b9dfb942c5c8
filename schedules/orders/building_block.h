// Orders of V placements that repeat a building block: the passes of one micro-batch in slots of equal length (Qi et
// al., Pipeline Parallelism with Controllable Memory, 2024, arXiv 2405.15362).
#pragma once

#include "schedules/orders/schedule.h"

#include <vector>

namespace pw {

// The slots of the first micro-batch on device d, whose stages are d on the way down and 2p - 1 - d on the way up. The
// next micro-batch follows kSlots later, so these slots differ modulo kSlots. W takes slots that they leave free.
struct BuildingBlock {
    static constexpr int kSlots = 6;  // F, I and W of two stages
    int forward_down, forward_up, input_up, input_down;
};

// Returns the orders that follow from the blocks of all devices. Each pass moves into the earliest slot in which its
// input is there and the device holds at most `most` activations of (stage, micro-batch), which the repeated block
// needs itself. I and F keep the order of these slots, micro-batches the order of their numbers, and W runs where a
// device would wait or has no space for the next F. The slots are only for ordering: the orders are free of deadlock
// whatever the times are.
std::vector<Tasks> orders_of_blocks(const Shape& shape, BuildingBlock (*block_of)(int devices, int device), int most);

}  // namespace pw
