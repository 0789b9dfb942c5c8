// Passes over a plan, and the one check that every plan must pass.
#pragma once

#include "schedules/plan/lanes.h"
#include "schedules/plan/plan_graph.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pw {

// Writes R, recomputation, right before each B, backward, or I, backward for inputs, of `stages`, before the whole of
// an overlapped pair; a plan without backward passes stays as it is. The forward F of these stages drops what it saves,
// R saves it again. Transfers are added first: R sends and receives nothing, and what its backward reads is received
// before R, so that it travels meanwhile.
void add_recomputes(Plan& plan, const std::vector<int>& stages);

// Writes S, the sum of gradients (of stages with several holders, or tied to others), and U, the update, right after
// each stage's last B or W, backward for weights, of every mini-batch on every holder, where the order has none. Both
// carry the mini-batch's last micro-batch. S and U of tied stages, and with a global norm every U, follow the last task
// of the device.
void add_updates(Plan& plan);

// Adds a SEND right after the task that makes a tensor for a stage on another device, and its RECV on
// the other side, in an order that cannot deadlock in the mode's lanes under any protocol:
// - lanes per edge, or deferred receives: just before the first task that reads the tensor, or before
//   the transfer that it would block;
// - shared lanes and early receives: as soon as it is sent, as PyTorch's lowering does;
// - exchanges that block: as soon as it is made, where both devices have gone the same number of steps.
void add_transfers(Plan& plan, const TransferMode& mode = {});

// Names a position of a plan in an error; by default it is "device 1 step 4". A transfer that the user did not write
// may have no name.
using PlaceName = std::function<std::string(int device, int position)>;

// What a proof has worked out of a plan: its graph, and the nodes in an order in which each comes after those that it
// waits for in `mode`; without an order nothing is proven.
struct Proof {
    PlanGraph graph;
    TransferMode mode = {};
    std::vector<int> order = {};

    // Returns whether the order is one in `other`, too: rendezvous, copies that are kept and exchanges that block only
    // add to what is waited for.
    bool holds_in(const TransferMode& other) const {
        return !order.empty() && mode.protocol == TransferMode::Protocol::Rendezvous && mode.sent_copies &&
               other.protocol != TransferMode::Protocol::OneSlot && mode.communicator == other.communicator &&
               mode.receive == other.receive && (mode.blocks() || !other.blocks());
    }
};

// Proves the plan complete (each task of the shape once, transfers paired), ordered (inputs before
// outputs) and free of deadlock in the lanes of `mode`, or throws: Error (BadInput) for a malformed
// plan, Error (Infeasible) for a deadlock, naming device, step, task and missing input:
//   plan '1f1b': device 0 waits forever at step 0: 0B7 needs 0F7, which no device runs before it
// A plan that is free of deadlock under rendezvous is so under the other protocols.
std::shared_ptr<const Proof> check(const Plan& plan,
                                   TransferMode mode = {.protocol = TransferMode::Protocol::Rendezvous},
                                   const PlaceName& place = {});

// Returns nodes of which each waits for the next and the last for the first; they are empty when the plan runs through.
// The plan must be well-formed: check() has passed in some mode. `asks` is asking_sends().
std::vector<int> deadlock_of(const Plan& plan, const PlanGraph& graph, const TransferMode& mode,
                             const std::vector<char>& asks = {});

// Throws the Error (Infeasible) of check() where the plan deadlocks: with the nodes of the circle, and with other lanes
// or protocols in which the plan, with the transfers it has, runs through, or that there are none.
void refuse_deadlock(const Plan& plan, const PlanGraph& graph, const TransferMode& mode, const std::vector<char>& asks,
                     const PlaceName& place = {});

}  // namespace pw
