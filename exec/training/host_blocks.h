// The memory of the host for what a device offloads, and which blocks each copy moves.
#pragma once

#include "exec/engine/device.h"
#include "exec/kernels.h"
#include "exec/training/held_stage.h"

#include <map>
#include <memory>
#include <vector>

namespace pw {

class HostBlocks {
public:
    // The buffers of the stages have their addresses.
    HostBlocks(const RunPlan& plan, int device, const HeldStages& stages, const Kernels& kernels);

    struct Block {
        const std::byte* from;
        std::byte* to;
        Bytes bytes;
    };
    const std::vector<Block>& moved_by(int node) const { return moved_.at(node); }  // of a copy

private:
    std::unique_ptr<Memory> memory_;
    std::map<int, std::vector<Block>> moved_;
};

}  // namespace pw
