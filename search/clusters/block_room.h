// What splits of a transformer divide, and how much of it fits the memory of devices.
#pragma once

#include "job/setup/setup.h"
#include "search/clusters/cluster_bounds.h"
#include "workloads/costs/costs.h"

#include <vector>

namespace pw {

// What splits divide. Blocks with equal costs that follow one another are a run.
struct SplitParts {
    struct Run {
        int blocks = 0;
        int stage = 0;  // of its first block
    };
    // The costs of a pipeline on any of the devices. Its stages are the embedding, the first block of each run, after
    // it the rest of a run of several blocks, and the head.
    Costs costs;
    std::vector<Run> runs;
    bool knows_saved = true;  // false: what blocks save differs by device

    int blocks() const;
};

// The memory of the devices of a choice less the embedding and the head, in bytes and in blocks, at the moments when
// they hold most activations. Bounds from above: no split has more blocks on a device. Keeps references to all
// arguments.
class BlockRoom {
public:
    BlockRoom(const OrderFacts& facts, const ShapeIndex& index, const SplitParts& parts,
              const std::vector<DeviceConfig>& devices);

    // Returns false if no split fits.
    bool may_fit() const;
    double blocks_of(int device) const { return blocks_[static_cast<std::size_t>(device)]; }
    double bytes_of(int device) const { return bytes_[static_cast<std::size_t>(device)]; }
    // Returns the bytes of a block of the run on a stage of the device.
    double bytes_on(int device, int stage, const SplitParts::Run& run) const;

private:
    bool holds(int device, int stage) const;
    const StageBytes& sizes_of(int device, int stage) const;
    double persistent(int device, int stage) const;
    double saved_on(int device, const OrderFacts::Held& held, const SplitParts::Run& run) const;
    double without_ends(int device) const;
    std::vector<double> least_bytes_of(int device) const;
    double room_of(int device) const;

    const OrderFacts& facts_;
    const ShapeIndex& index_;
    const SplitParts& parts_;
    const std::vector<DeviceConfig>& devices_;
    std::vector<double> bytes_, blocks_;            // by device, below 0 if not even embedding and head fit
    std::vector<std::vector<double>> least_bytes_;  // by device and run: of a block, where that is least
};

}  // namespace pw
