// Passes over a plan, and the check that every plan must pass.
#pragma once

#include "schedules/plan/known_times.h"
#include "schedules/plan/lanes.h"
#include "schedules/plan/offloading.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/recomputation.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pw {

// Removes the backwards of the stages in Shape::forwards_only, with what ends their mini-batches and with messages of
// their gradients. What is left of a pair is a single task. This pass is the first.
void drop_backwards(Plan& plan);

// Inserts R (recomputation) right before the B (backward) or I (backward for inputs) of each micro-batch that it is
// for, or before the first backward of the device where the F comes before that. R always precedes both tasks of an
// overlapped pair. A plan without backwards does not change. The F of these micro-batches drops what it saves, and R
// saves it again. Add transfers first: R sends and receives nothing, and the tensors of the backward that follows are
// received before R, so that they travel meanwhile.
void add_recomputes(Plan& plan, const Recomputation& recomputation);

// Inserts OFFLOAD and RELOAD of what the F of these stages saves, and STORE and LOAD of optimizer states. This pass is
// the last: its copies come right before tasks that occupy the device, after the transfers ahead of these. Copies in
// the same direction are in the order of the F, and of the backwards. A plan without backwards does not change.
void add_offloads(Plan& plan, const Offloading& offloading);

// Inserts S (sum of gradients, for stages with several holders or ties) and U (update) right after each stage's last B
// or W of every mini-batch on every holder, where the order has none. Both carry the last micro-batch of the
// mini-batch. S and U of tied stages, and with a global norm every U, follow the device's last task. Where a holder has
// other stages, too, by these times S runs once the stage's last gradient is made and no holder is within a task.
void add_updates(Plan& plan, const KnownTimes& times = {});

// Adds a SEND right after the task that makes a tensor for a stage on another device, or after its pair, and its RECV
// on the other side, ahead of the reader or its pair, in an order that cannot deadlock in the lanes of the mode under
// any protocol:
// - lanes per edge, or deferred receives: just before the first task that reads the tensor, or before the transfer that
//   it would block;
// - shared lanes and early receives: as soon as the tensor is sent, as PyTorch's lowering does;
// - blocking exchanges: as soon as the tensor is made, once both devices have done the same number of steps.
void add_transfers(Plan& plan, const TransferMode& mode = {});

// Names a position of a plan in an error. The default is "device 1 step 4". It may return no name for a transfer that
// the user did not write.
using PlaceName = std::function<std::string(int device, int position)>;

// What a proof computed from a plan: its graph, and its nodes in an order in which each follows the nodes that it waits
// for in `mode`. Without an order nothing is proven.
struct Proof {
    PlanGraph graph;
    TransferMode mode = {};
    std::vector<int> order = {};

    // Returns whether the order also holds in `other`: rendezvous, kept copies and blocking exchanges only add waits.
    bool holds_in(const TransferMode& other) const {
        return !order.empty() && mode.protocol == TransferMode::Protocol::Rendezvous && mode.sent_copies &&
               other.protocol != TransferMode::Protocol::OneSlot && mode.communicator == other.communicator &&
               mode.receive == other.receive && (mode.blocks() || !other.blocks()) &&
               (mode.copies == TransferMode::Copies::InTurn || mode.copies == other.copies);
    }
};

// Proves the plan complete (each task of the shape once, transfers paired), ordered (inputs before outputs) and free of
// deadlock in the lanes of `mode`. Throws Error (BadInput) for a malformed plan and Error (Infeasible) for a deadlock,
// with device, step, task and missing input:
//   plan '1f1b': device 0 waits forever at step 0: 0B7 needs 0F7, which no device runs before it
// A plan without deadlock under rendezvous has none under the other protocols.
std::shared_ptr<const Proof> check(const Plan& plan,
                                   TransferMode mode = {.protocol = TransferMode::Protocol::Rendezvous},
                                   const PlaceName& place = {});

// Returns nodes of which each waits for the next, and the last for the first. Returns none if the plan completes. The
// plan must be well-formed: check() has passed in some mode. `by_rendezvous` is sends_by_rendezvous().
std::vector<int> deadlock_of(const Plan& plan, const PlanGraph& graph, const TransferMode& mode,
                             const std::vector<char>& by_rendezvous = {});

// Throws the Error (Infeasible) of check() if the plan deadlocks. It lists the cycle, and the settings of lanes and
// protocols with which the plan with these transfers completes, or says that there are none.
void refuse_deadlock(const Plan& plan, const PlanGraph& graph, const TransferMode& mode,
                     const std::vector<char>& by_rendezvous, const PlaceName& place = {});

}  // namespace pw
