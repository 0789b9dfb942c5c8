// Every buffer of a plan and when it lives, as positions in the device's own task list. The
// simulator adds them up, the executor allocates them.
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
    Weights,          // version `version` of a stage; one buffer may hold several versions in turn
    Statistics,       // running averages
    BatchStatistics,  // those of a micro-batch: from its F, forward, to the U, update, that takes them in
    Gradients,
    Optimizer,  // one; where a stage's weights are predicted, one beside each of `Weights`
    Predicted,  // weights that the running task reads
    Workspace,  // one per device
    Data,       // input data of a micro-batch
    UntilInput,
    UntilWeight,
    GradientKept,  // these three: workloads/stages/stage_layout.h; where R, recomputation, is, it makes the first two
    Dropped,       // UntilInput and UntilWeight in one, as F makes them where R will; it dies with F
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
    int version = -1;  // weights and optimizer: the first version it holds
    // A buffer lives from the start of task `first` to the end of task `last` of order[device]; the whole step when
    // first is 0 and last is the last position.
    int first = 0, last = 0;
    int part = 0;  // for gradients: which block of a stage whose holders' sums lie on one device
};

// Returns all buffers of a plan, which has its transfers. With `early`, receives are posted as soon as their data can
// arrive. `gradient_parts` says by stage how many blocks of gradients a device keeps apart (Job::gradient_parts); when
// it is empty, there is one of each.
std::vector<Buffer> buffers_of(const Plan& plan, const Costs& costs, const VersionTable& versions, bool early = true,
                               const std::vector<int>& gradient_parts = {});
// Returns the same with the proof of the plan, for those who have it.
std::vector<Buffer> buffers_of(const Plan& plan, const Proof& proof, const Costs& costs, const VersionTable& versions,
                               bool early, const std::vector<int>& gradient_parts = {});

// Returns whether senders keep a copy: the transport makes one, or the landing buffer is not there yet when the tensor
// is made.
bool keeps_copies(const Costs& costs, bool early);

// Returns, per device and position of its list, the live bytes by kind while that task runs. A device without tasks has
// one position.
std::vector<std::vector<MemoryUse>> memory_of(const Plan& plan, const std::vector<Buffer>& buffers);

// Returns which of the buffers lie on each device, ascending.
Rows by_device(const std::vector<Buffer>& buffers, int devices);
// Returns memory_of() for one device, whose list is `order` and whose buffers are `own`.
std::vector<MemoryUse> memory_of(const std::vector<Task>& order, const std::vector<Buffer>& buffers,
                                 std::span<const int> own);

// Returns the largest total over the positions of a device, by kind.
MemoryUse peak_of(const std::vector<MemoryUse>& positions);
// Returns the same for one device, without all positions.
MemoryUse peak_of(const std::vector<Task>& order, const std::vector<Buffer>& buffers, std::span<const int> own);

// A packing gives the buffers offsets in one arena per device, so that buffers that live together do not overlap.
// arena[device] is the size: what a run reserves, the peak or more where gaps stay between the buffers. Where `enough`
// is given, a device whose arena is no larger than enough[device] is not packed further: then its arena may be larger
// than the one without, but not than that.
struct Packing {
    std::vector<Bytes> offset;  // per buffer
    std::vector<Bytes> arena;   // per device
};
Packing pack(const std::vector<Buffer>& buffers, int devices, std::span<const Bytes> enough = {});

// Returns per device the bytes that a run of the plan reserves before its first step.
std::vector<Bytes> reserved_of(const Plan& plan, const Costs& costs, const VersionTable& versions,
                               const TransferMode& mode);

}  // namespace pw
