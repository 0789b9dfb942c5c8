// The stages that a device holds, and the data that the parts of a device share.
#pragma once

#include "exec/engine/device.h"
#include "exec/training/extent.h"
#include "exec/training/layouts.h"
#include "exec/training/stage_memory.h"
#include "exec/training/stage_program.h"
#include "workloads/models/optimizer.h"

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

namespace pw {

// The share of a device in a stage, as bytes of the stage's block: the bytes that the device sums in S, the sum of
// gradients, and the bytes that it updates if the holders shard the optimizer's states.
struct StageShare {
    std::vector<int> holders;  // devices
    std::size_t number = 0;    // the index of the device in `holders`
    Extent all, part;
    bool is_sharded = false;
    std::vector<Extent> needed;  // the bytes whose sums the device needs
    int buckets = 1;             // the number of buckets of S (the bucket thread sums several buckets)

    // The last bytes of the block are in bucket 0, since they are final first.
    Extent bucket(int number_of_bucket) const;
    // Returns the bytes of a bucket that a holder sums: an equal share or, in a sharded stage, the bytes in its
    // part.
    Extent share_in(const Extent& bucket, std::size_t holder) const;
};

struct HeldStage {
    StageMemory memory;
    // Only on the device's own rank. `last` is for a smaller last micro-batch of a mini-batch, or null.
    std::unique_ptr<StageProgram> program = nullptr, last = nullptr;
    StageShare share = {};  // set when the layouts are known
    Places places = {};     // the addresses of the current task

    // Returns the bytes of the stage's block that the device updates.
    const Extent& updated() const { return share.is_sharded ? share.part : share.all; }
    // Returns the optimizer's states of these bytes.
    OptimizerStates states(int version) const { return {memory.states(version), updated().bytes}; }
    // Returns the average of the steps of weights, which follows the states where weights are corrected.
    std::byte* step_average(const OptimizerFacts& optimizer) const { return states(0).block(optimizer.states); }
};
using HeldStages = std::map<int, HeldStage>;  // by stage

// With `whole` the device needs the sums of all bytes.
StageShare share_of_stage(const RunPlan& plan, const Layouts& layouts, int device, int stage, bool whole);

// The access of a device to the memory of other devices at an S or U.
class Peers {
public:
    virtual ~Peers() = default;
    // Returns the memory of a stage on any device that holds it.
    virtual const StageMemory& memory_of(int device, int stage) const = 0;
    // Waits for the other devices of the node's barrier. `round` counts the waits of a node from 0. All work done
    // or enqueued before the wait is done before any of these devices begins later work.
    virtual void arrive(int node, int round) = 0;
    // Returns whether kernels here can read the memory of another device. If not, the memory is fetched.
    virtual bool reads(int device) const = 0;
    // Copies bytes of a device: at once if kernels here can read them, otherwise with the next fetch().
    virtual void copy(int device, const std::byte* from, std::byte* to, Bytes bytes) = 0;
    // Called by all devices of an S or U: the requested bytes arrive before any later work of the devices.
    virtual void fetch(int node) = 0;
    // Returns whether the transport sums a stage in an order of its own. Each holder then sums its own gradients,
    // and reduce(), called by all devices of an S, adds up the sums of all holders.
    virtual bool reduces(int /*stage*/) const { return false; }
    virtual void reduce(int /*node*/) {}
};

struct DeviceScope {
    const RunPlan& plan;
    const Layouts& layouts;
    const Kernels& kernels;
    const int device;
    HeldStages& stages;
    Peers& peers;

    bool holds(int stage) const { return stages.contains(stage); }
};

}  // namespace pw
