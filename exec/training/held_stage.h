// The stages that a device holds, and what the parts of a device share.
#pragma once

#include "exec/engine/device.h"
#include "exec/training/extent.h"
#include "exec/training/layouts.h"
#include "exec/training/stage_memory.h"
#include "exec/training/stage_program.h"

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

namespace pw {

// The share of a device in a stage, as bytes of the stage's block: what the device adds up in S, the sum of gradients,
// and what it updates if the holders share out the optimizer's states.
struct StageShare {
    std::vector<int> holders;  // devices
    std::size_t number = 0;    // of the device among them
    Extent all, part;
    bool is_sharded = false;
    std::vector<Extent> wanted;  // whose sums the device needs
    int buckets = 1;             // in which S sums; several: on the bucket thread

    // The last bytes of the block are in bucket 0: they are the first that are final.
    Extent bucket(int number_of_bucket) const;
    // Returns what a holder adds up of a bucket: an equal share, or, of a sharded stage, what lies in its part.
    Extent share_in(const Extent& bucket, std::size_t holder) const;
};

struct HeldStage {
    StageMemory memory;
    bool saves = false;  // what its F saves is read back
    // On the device's own rank: `last` for a smaller last micro-batch of a mini-batch, or null.
    std::unique_ptr<StageProgram> program = nullptr, last = nullptr;
    StageShare share = {};  // once the layouts are known
    Places places = {};     // of the task that runs
};
using HeldStages = std::map<int, HeldStage>;  // by stage

// Needs the layouts. `whole`: the sums of all bytes are wanted.
StageShare share_of_stage(const RunPlan& plan, const Layouts& layouts, int device, int stage, bool whole);

// How a device gets at the memory of others at an S or U.
class Peers {
public:
    virtual ~Peers() = default;
    // Returns the memory of a stage on any device that holds it.
    virtual const StageMemory& memory_of(int device, int stage) const = 0;
    // Waits for the other devices of the node's barrier, for the round-th time, from 0. What was done or queued before
    // it is done before what any of them does afterwards.
    virtual void arrive(int node, int round) = 0;
    // Returns whether kernels here read the memory of another device; if not, it is fetched.
    virtual bool reads(int device) const = 0;
    // Copies bytes of a device, at once if kernels here read them, else with the next fetch().
    virtual void copy(int device, const std::byte* from, std::byte* to, Bytes bytes) = 0;
    // Called by all devices of an S or U: what they have asked for is there before anything that they do next.
    virtual void fetch(int node) = 0;
    // Returns whether the transport adds up a stage in an order of its own: then each holder adds up its own gradients,
    // and reduce(), called by all devices of an S, adds up those of all.
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
