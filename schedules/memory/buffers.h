// Every buffer of a plan with its lifetime, as positions in the device's own task list. The simulator adds the buffers
// up. The executor allocates them.
#pragma once

#include "schedules/plan/lanes.h"
#include "schedules/plan/plan.h"
#include "schedules/plan/rows.h"
#include "schedules/plan/versions.h"
#include "schedules/trace/trace.h"
#include "workloads/costs/costs.h"

#include <span>
#include <vector>

namespace pw {

struct Proof;  // schedules/passes/passes.h

enum class BufferUse {
    Weights,          // a version of a stage, or several versions in turn
    Statistics,       // running averages
    BatchStatistics,  // of one micro-batch: from its F until the U that includes them
    Gradients,
    // With STORE and LOAD, not in memory between these two tasks.
    Optimizer,  // for all states, or for each of `Weights` if weights are predicted. If weights are corrected, the last
                // block is the average of their steps
    Predicted,  // weights that the running task reads
    Workspace,  // a buffer per device
    Data,       // input data of a micro-batch
    UntilInput,
    UntilWeight,
    GradientKept,    // these three: workloads/stages/stage_layout.h. With R, R makes the first two
    SliceGradients,  // of the keys and values of a slice: from the backward of the last slice to its own
    KeysAndValues,   // of a slice without a backward: until the last slice of its micro-batch has read them
    Dropped,         // UntilInput and UntilWeight together, as F makes them if R follows. It ends with F
    FirstUntilAgain,
    FirstUntilInput,
    FirstUntilWeight,     // these three: workloads/stages/stage_layout.h. F makes them
    OffloadedUntilInput,  // of offloaded layers. In offloaded stages they end with the OFFLOAD of the micro-batch
    OffloadedUntilWeight,
    ReloadedUntilInput,  // the same tensors from the RELOAD on
    ReloadedUntilWeight,
    LandingForward,
    LandingBackward,  // the two landing buffers of boundary from -> to
    SentForward,
    SentBackward,  // the sender's copy
};

struct Buffer {
    BufferUse use;
    MemoryKind kind;
    Bytes bytes;
    int device;
    int stage = -1;
    int microbatch = -1;
    int edge = -1;     // landing and sent buffers: index into Costs::edges
    int version = -1;  // weights and optimizer: the first version that it holds
    // A buffer lives from the start of task `first` to the end of task `last` of order[device]: the whole step if first
    // is 0 and last is the last position. No buffer begins or ends between the tasks of a pair. If first is after last,
    // the buffer lives on in the next step: from the start of the list to `last`, and from `first` to the end.
    int first = 0, last = 0;
    int part = 0;  // of gradients: the block, if several holders' sums of a stage are on one device

    bool lives_on() const { return first > last; }
    bool lives_at(int position) const {
        return lives_on() ? position <= last || position >= first : first <= position && position <= last;
    }
};

// Returns all buffers of a plan with transfers. With `early`, receives are posted as soon as their data can arrive.
// `gradient_parts` has the number of separate blocks of gradients of each stage on a device (Job::gradient_parts).
// Empty means a single block each.
std::vector<Buffer> buffers_of(const Plan& plan, const Costs& costs, const VersionTable& versions, bool early = true,
                               const std::vector<int>& gradient_parts = {});
// Returns the same, using the proof of the plan.
std::vector<Buffer> buffers_of(const Plan& plan, const Proof& proof, const Costs& costs, const VersionTable& versions,
                               bool early, const std::vector<int>& gradient_parts = {});

// Returns the buffers that a plan needs in the memory of the hosts: what has left a device, from its F until the last
// task that reads it, and optimizer states for the whole list. A buffer has the positions and the device of the
// tensor. `buffers` are the plan's.
std::vector<Buffer> host_buffers_of(const std::vector<Buffer>& buffers);

// Returns whether senders keep a copy: the transport makes a copy, or the landing buffer may not exist yet when the
// tensor is made.
bool keeps_copies(const Costs& costs, bool early);

// Returns, for each device and position of its list, the live bytes by kind while that task runs. A device without
// tasks has a single position.
std::vector<std::vector<MemoryUse>> memory_of(const Plan& plan, const std::vector<Buffer>& buffers);

// Returns the numbers of the buffers on each device, ascending.
Rows by_device(const std::vector<Buffer>& buffers, int devices);
// Returns memory_of() for a device with the list `order` and the buffers `own`.
std::vector<MemoryUse> memory_of(const std::vector<Task>& order, const std::vector<Buffer>& buffers,
                                 std::span<const int> own);

// Returns the memory at the position of a device where the total is largest.
MemoryUse peak_of(const std::vector<MemoryUse>& positions);
// Returns the same for a single device, without storing all positions.
MemoryUse peak_of(const std::vector<Task>& order, const std::vector<Buffer>& buffers, std::span<const int> own);

// Offsets of buffers in an arena per device. Buffers that live at the same time do not overlap. arena[device] is the
// size that a run reserves: the peak, or more if gaps remain between buffers. With `enough`, a device whose arena is no
// larger than enough[device] is not packed further. Its arena may then be larger than without `enough`, but not larger
// than enough[device].
struct Packing {
    std::vector<Bytes> offset;  // per buffer
    std::vector<Bytes> arena;   // per device
};
Packing pack(const std::vector<Buffer>& buffers, int devices, std::span<const Bytes> enough = {});

// Returns by device the memory that a run with these buffers needs: the size of its arena, or without an arena
// (Costs::has_arena) the peak. `enough` is as for pack().
std::vector<Bytes> needed_by(const Plan& plan, const std::vector<Buffer>& buffers, const Costs& costs,
                             std::span<const Bytes> enough = {});

// What a device holds when it holds most, and the memory that a run needs on it, as needed_by() returns it.
struct MemoryOfDevice {
    MemoryUse peak;
    Bytes needed;
};
// Returns this by device. Without an arena, only the buffers of one device exist at a time.
std::vector<MemoryOfDevice> memory_by_device(const Plan& plan, const Proof& proof, const Costs& costs,
                                             const VersionTable& versions, bool early);

// Returns by device the bytes that a run of the plan needs: with an arena it reserves them before its first step.
std::vector<Bytes> reserved_of(const Plan& plan, const Costs& costs, const VersionTable& versions,
                               const TransferMode& mode);

}  // namespace pw
