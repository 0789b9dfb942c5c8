// What stages hold in memory, and for how long. Buffers of a plan and orders by costs use the same table.
#pragma once

#include "schedules/memory/buffers.h"
#include "workloads/costs/costs.h"

#include <array>

namespace pw {

// The passes of a micro-batch on a stage, in order. Without R, Again is Forward. B is Input and Weight.
enum class Moment { Forward, Again, Input, Weight };

// A tensor that lives from the start of pass `from` to the end of pass `last`.
struct HeldTensor {
    BufferUse use;
    MemoryKind kind;
    Bytes bytes;  // of a micro-batch of length 1
    Moment from, last;
};

// Returns what a micro-batch holds on a stage, besides tensors of other stages. `again`: R makes activations again.
// `whole`: I and W run as one B. Some tensors have 0 bytes.
std::array<HeldTensor, 10> activations_of(const StageBytes& bytes, bool again, bool whole);

// Returns the tensor of an edge where it is received, from the pass that reads it.
HeldTensor landing_of(const EdgeBytes& edge, bool forward);

// Returns a workspace of a stage, `whole` for a micro-batch of length 1, for a micro-batch or slice of this length.
Bytes workspace_of(Bytes whole, const StageBytes& bytes, const Costs& costs, double length);

// Returns the workspace of a task. Returns 0 for tasks that need none.
Bytes workspace_of(const Task& task, const Costs& costs);

}  // namespace pw
