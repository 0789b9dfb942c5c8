// The operations of a plan, each with a row of facts: names, colour, role, costs and the dependency rule.
#pragma once

#include "workloads/costs/stage_cost.h"
#include "workloads/stages/stage_bytes.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>

namespace pw {

// Operations that compute come first, then those that run once per update, then transfers. Sorted lists of tasks, and
// the numbers in pages and files, are in this order.
enum class Op : std::uint8_t {
    Forward,
    Backward,       // gradients of inputs and weights in one pass
    BackwardInput,  // the zero-bubble papers' B
    BackwardWeight,
    Recompute,
    Update,
    SumGradients,
    SendForward,
    RecvForward,
    SendBackward,
    RecvBackward,
    Last = RecvBackward,  // number of rows in the table of facts
};

inline constexpr int kOps = static_cast<int>(Op::Last) + 1;

enum class OpRole : std::uint8_t { Compute, Update, Sum, Send, Receive };

// The gradients that an operation makes, or a transfer carries.
enum class Gradients : std::uint8_t { None, OfInputs, OfWeights, OfBoth };

// The stages at the other ends of a transfer: those that feed the task's stage, or those that it feeds.
enum class PeerStages : std::uint8_t { None, Before, After };

// One kind of task that an operation waits for. B also satisfies a `made_by` of BackwardInput or BackwardWeight.
struct OpInput {
    enum class From : std::uint8_t {
        Stage,        // the same micro-batch of the same stage
        Peers,        // the same micro-batch of the stages of `received_by`, through a RECV if on another device
        OtherEnd,     // the task at the other end of the transfer
        SinceUpdate,  // all tasks of the stage in the device's list since its last U
    };
    From from;
    Op made_by;
    std::optional<Op> received_by = {};  // From::Peers: the transfer that brings the tensor from another device
    bool if_any = false;                 // a plan may lack it
};

struct OpFacts {
    Op op;
    std::string_view letters;  // as printed and read: "SEND_F"
    std::string_view words;    // for people
    std::uint32_t colour;      // on plots, 0xrrggbb
    OpRole role;
    Gradients gradients;
    bool reads_weights;       // of a version (schedules/plan/versions.h)
    std::optional<Op> whole;  // the operation that includes this one
    PeerStages peers;         // of a transfer
    std::optional<Op> other_end;
    Ns StageCost::*cost;              // null for transfers, whose times are those of links
    Bytes StageBytes::*workspace;     // null if the task needs none
    std::span<const OpInput> inputs;  // the dependency rule, without what barriers add
};

namespace op_inputs {
using From = OpInput::From;
inline constexpr OpInput kForward[] = {{From::Peers, Op::Forward, Op::RecvForward}};
inline constexpr OpInput kBackward[] = {{From::Stage, Op::Forward},
                                        {.from = From::Stage, .made_by = Op::Recompute, .if_any = true},
                                        {From::Peers, Op::BackwardInput, Op::RecvBackward}};
inline constexpr OpInput kAfterForward[] = {{From::Stage, Op::Forward}};
inline constexpr OpInput kAfterInput[] = {{From::Stage, Op::BackwardInput}};
inline constexpr OpInput kUpdate[] = {{From::SinceUpdate, Op::BackwardWeight}, {From::SinceUpdate, Op::SumGradients}};
inline constexpr OpInput kSum[] = {{From::SinceUpdate, Op::BackwardWeight}};
inline constexpr OpInput kRecvForward[] = {{From::OtherEnd, Op::SendForward}};
inline constexpr OpInput kRecvBackward[] = {{From::OtherEnd, Op::SendBackward}};
}  // namespace op_inputs

// Blue, orange, teal and lime differ in lightness too, so that they stay distinct in grey and for colour-blind readers.
// clang-format off
inline constexpr OpFacts kOpFacts[] = {
    // op, letters, words, colour, role, gradients, reads weights,
    //     whole, peers, other end, cost, workspace, inputs
    {Op::Forward, "F", "forward", 0x2f6db5, OpRole::Compute, Gradients::None, true,
     {}, PeerStages::None, {}, &StageCost::forward, &StageBytes::forward_workspace, op_inputs::kForward},
    {Op::Backward, "B", "backward", 0xf2a03d, OpRole::Compute, Gradients::OfBoth, true,
     {}, PeerStages::None, {}, &StageCost::backward, &StageBytes::backward_workspace, op_inputs::kBackward},
    {Op::BackwardInput, "I", "backward (inputs)", 0x0b8a7d, OpRole::Compute, Gradients::OfInputs, true,
     Op::Backward, PeerStages::None, {}, &StageCost::backward_input, &StageBytes::input_workspace, op_inputs::kBackward},
    {Op::BackwardWeight, "W", "backward (weights)", 0xa9d46a, OpRole::Compute, Gradients::OfWeights, false,
     Op::Backward, PeerStages::None, {}, &StageCost::backward_weight, &StageBytes::weight_workspace, op_inputs::kAfterInput},
    {Op::Recompute, "R", "recompute", 0xbfe0f7, OpRole::Compute, Gradients::None, true,
     {}, PeerStages::None, {}, &StageCost::recompute, &StageBytes::recompute_workspace, op_inputs::kAfterForward},
    {Op::Update, "U", "update", 0x7d8590, OpRole::Update, Gradients::None, false,
     {}, PeerStages::None, {}, &StageCost::update, nullptr, op_inputs::kUpdate},
    {Op::SumGradients, "S", "gradient sum", 0x9a6bb5, OpRole::Sum, Gradients::None, false,
     {}, PeerStages::None, {}, &StageCost::sum_gradients, nullptr, op_inputs::kSum},
    {Op::SendForward, "SEND_F", "send activations", 0x79a9dd, OpRole::Send, Gradients::None, false,
     {}, PeerStages::After, Op::RecvForward, nullptr, nullptr, op_inputs::kAfterForward},
    {Op::RecvForward, "RECV_F", "receive activations", 0x79a9dd, OpRole::Receive, Gradients::None, false,
     {}, PeerStages::Before, Op::SendForward, nullptr, nullptr, op_inputs::kRecvForward},
    {Op::SendBackward, "SEND_B", "send gradients", 0xe3975a, OpRole::Send, Gradients::OfInputs, false,
     {}, PeerStages::Before, Op::RecvBackward, nullptr, nullptr, op_inputs::kAfterInput},
    {Op::RecvBackward, "RECV_B", "receive gradients", 0xe3975a, OpRole::Receive, Gradients::OfInputs, false,
     {}, PeerStages::After, Op::SendBackward, nullptr, nullptr, op_inputs::kRecvBackward},
};
// clang-format on

static_assert(std::size(kOpFacts) == static_cast<std::size_t>(kOps), "every operation has one row of facts");

constexpr const OpFacts& facts_of(Op op) { return kOpFacts[static_cast<std::size_t>(op)]; }

constexpr std::string_view letters_of(Op op) { return facts_of(op).letters; }
std::optional<Op> op_from(std::string_view letters);
constexpr std::string_view words_of(Op op) { return facts_of(op).words; }

// F B I W R, which the metrics ideal, busy and span count.
constexpr bool is_compute(Op op) { return facts_of(op).role == OpRole::Compute; }
constexpr bool is_send(Op op) { return facts_of(op).role == OpRole::Send; }
constexpr bool is_recv(Op op) { return facts_of(op).role == OpRole::Receive; }
constexpr bool is_transfer(Op op) { return is_send(op) || is_recv(op); }
// U and S, which end a mini-batch: they run once on every holder of a stage.
constexpr bool is_closing(Op op) { return facts_of(op).role == OpRole::Update || facts_of(op).role == OpRole::Sum; }

constexpr bool makes_input_gradient(Op op) {
    const Gradients made = facts_of(op).gradients;
    return is_compute(op) && (made == Gradients::OfInputs || made == Gradients::OfBoth);
}
constexpr bool makes_weight_gradient(Op op) {
    const Gradients made = facts_of(op).gradients;
    return is_compute(op) && (made == Gradients::OfWeights || made == Gradients::OfBoth);
}
constexpr bool is_backward(Op op) { return is_compute(op) && facts_of(op).gradients != Gradients::None; }
// The other transfers carry activations.
constexpr bool carries_gradients(Op op) { return is_transfer(op) && facts_of(op).gradients != Gradients::None; }
// Returns whether `op` is `part` or includes it: B includes I and W.
constexpr bool does(Op op, Op part) { return op == part || facts_of(part).whole == op; }
// Returns whether an operation reads the tensor that a RECV receives.
constexpr bool reads(Op op, Op recv) {
    for (const OpInput& input : facts_of(op).inputs)
        if (input.received_by == recv)
            return true;
    return false;
}

}  // namespace pw
