// The operations of a plan, each with a row of facts: names, colour, role, costs and the dependency rule.
#pragma once

#include "workloads/costs/stage_cost.h"
#include "workloads/stages/stage_bytes.h"
#include "workloads/text/choice.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>

namespace pw {

// Operations that compute come first, then operations that run once per update, then transfers. Sorted lists of tasks,
// and the numbers in pages and files, are in this order. Copies to and from the host come last.
enum class Op : std::uint8_t {
    Forward,
    Backward,       // gradients of inputs and weights in a single pass
    BackwardInput,  // the zero-bubble papers' B
    BackwardWeight,
    Recompute,
    Update,
    SumGradients,
    SendForward,
    RecvForward,
    SendBackward,
    RecvBackward,
    Offload,      // a copy of what F saves, to the memory of the host
    Reload,       // the copy back
    Store,        // a copy of a stage's optimizer states, to the memory of the host
    Load,         // the copy back
    Last = Load,  // number of rows in the table of facts
};

inline constexpr int kOps = static_cast<int>(Op::Last) + 1;

// Leave, Return: copies from a device to the memory of its host, and back.
enum class OpRole : std::uint8_t { Compute, Update, Sum, Send, Receive, Leave, Return };
template <>
inline constexpr Choice<OpRole> kChoices<OpRole>[] = {
    {"compute", OpRole::Compute}, {"update", OpRole::Update}, {"sum", OpRole::Sum},      {"send", OpRole::Send},
    {"receive", OpRole::Receive}, {"leave", OpRole::Leave},   {"return", OpRole::Return}};

// The gradients that an operation makes, or a transfer carries.
enum class Gradients : std::uint8_t { None, OfInputs, OfWeights, OfBoth };

// What an operation does with the tensors that F saves for the backward pass. The last operation that makes gradients
// of inputs frees the tensors that these gradients need. The same holds for gradients of weights.
enum class Saved : std::uint8_t { None, Made, MadeAgain };

// The stages at the other ends of a transfer: the stages that feed the task's stage, or the stages that it feeds.
enum class PeerStages : std::uint8_t { None, Before, After };

// A kind of task that an operation waits for. B also satisfies a `made_by` of BackwardInput or BackwardWeight.
struct OpInput {
    enum class From : std::uint8_t {
        Stage,         // the same micro-batch of the same stage
        EarlierSlice,  // the previous slice of the same micro-batch on the same stage, if there is one
        LaterSlice,    // the next slice
        Peers,         // the same micro-batch of the stages of `received_by`, through a RECV if on another device
        OtherEnd,      // the task at the other end of the transfer
        Joined,        // the same micro-batch of all stages that the stage is joined with (Shape::joined)
        SinceUpdate,   // all tasks of the stage in the device's list since its last U
    };
    From from = From::Stage;
    Op made_by = Op::Forward;
    std::optional<Op> received_by = {};  // From::Peers: the transfer that brings the tensor from another device
    bool if_any = false;                 // a plan may lack it
};

struct OpFacts {
    Op op;
    std::string_view letters;  // as printed and read: "SEND_F"
    std::string_view words;    // for people
    std::uint32_t colour;      // on plots, 0xrrggbb
    OpRole role;
    bool once_per_update;  // runs on every holder of the stage
    Gradients gradients;
    Saved saved;
    bool reads_weights;       // of a version (schedules/plan/versions.h)
    std::optional<Op> whole;  // the operation that includes this operation
    PeerStages peers;         // of a transfer
    std::optional<Op> other_end;
    std::span<const OpInput> inputs;  // the dependency rule, without what barriers add
    Ns StageCost::*cost;              // null for transfers and copies, which take the times of links
    // Null for tasks that run once per mini-batch, for transfers and copies, and for operations that include further
    // operations.
    double MicroBatchLength::*length;
    Bytes StageBytes::*workspace;  // null if the task needs none
};

namespace op_inputs {
using From = OpInput::From;
// A slice attends to the keys and values of earlier slices, so that it adds to the gradients of these.
inline constexpr OpInput kForward[] = {{From::Peers, Op::Forward, Op::RecvForward}, {From::EarlierSlice, Op::Forward}};
inline constexpr OpInput kBackward[] = {{From::Stage, Op::Forward},
                                        {.from = From::Stage, .made_by = Op::Recompute, .if_any = true},
                                        {.from = From::Stage, .made_by = Op::Reload, .if_any = true},
                                        {From::Peers, Op::BackwardInput, Op::RecvBackward},
                                        {From::LaterSlice, Op::BackwardInput}};
inline constexpr OpInput kAfterForward[] = {{From::Stage, Op::Forward}};
inline constexpr OpInput kRecompute[] = {{From::Stage, Op::Forward},
                                         {.from = From::Stage, .made_by = Op::Reload, .if_any = true}};
inline constexpr OpInput kAfterInput[] = {{From::Stage, Op::BackwardInput}};
// Gradients of weights of a joined stage also need the forwards of all stages that it is joined with.
template <std::size_t count>
constexpr std::array<OpInput, count + 1> with_joined(const OpInput (&own)[count]) {
    std::array<OpInput, count + 1> inputs;
    std::ranges::copy(own, inputs.begin());
    inputs.back() = {From::Joined, Op::Forward};
    return inputs;
}
inline constexpr std::array kWhole = with_joined(kBackward);
inline constexpr std::array kWeight = with_joined(kAfterInput);
inline constexpr OpInput kUpdate[] = {
    {From::SinceUpdate, Op::BackwardWeight}, {From::SinceUpdate, Op::SumGradients}, {From::SinceUpdate, Op::Load}};
inline constexpr OpInput kSum[] = {{From::SinceUpdate, Op::BackwardWeight}};
inline constexpr OpInput kRecvForward[] = {{From::OtherEnd, Op::SendForward}};
inline constexpr OpInput kRecvBackward[] = {{From::OtherEnd, Op::SendBackward}};
inline constexpr OpInput kReload[] = {{From::Stage, Op::Offload}};
inline constexpr OpInput kLoad[] = {{From::SinceUpdate, Op::Store}};
}  // namespace op_inputs

// Blue, orange, teal and lime differ in lightness too, so that they stay distinct in grey and for colour-blind readers.
// Transfers are thin: they have a contrast of 3 to 1 at least on light and on dark pages (WCAG 2.2, 1.4.11).
// clang-format off
inline constexpr OpFacts kOpFacts[] = {
    // op, letters, words, colour, role, once per update, gradients, saved,
    //     reads weights, whole, peers, other end, inputs,
    //     cost, length, workspace
    {Op::Forward, "F", "forward", 0x2f6db5, OpRole::Compute, false, Gradients::None, Saved::Made,
     true, {}, PeerStages::None, {}, op_inputs::kForward,
     &StageCost::forward, &MicroBatchLength::forward, &StageBytes::forward_workspace},
    {Op::Backward, "B", "backward", 0xf2a03d, OpRole::Compute, false, Gradients::OfBoth, Saved::None,
     true, {}, PeerStages::None, {}, op_inputs::kWhole,
     &StageCost::backward, nullptr, &StageBytes::backward_workspace},
    {Op::BackwardInput, "I", "backward (inputs)", 0x0b8a7d, OpRole::Compute, false, Gradients::OfInputs, Saved::None,
     true, Op::Backward, PeerStages::None, {}, op_inputs::kBackward,
     &StageCost::backward_input, &MicroBatchLength::backward_input, &StageBytes::input_workspace},
    {Op::BackwardWeight, "W", "backward (weights)", 0xa9d46a, OpRole::Compute, false, Gradients::OfWeights, Saved::None,
     false, Op::Backward, PeerStages::None, {}, op_inputs::kWeight,
     &StageCost::backward_weight, &MicroBatchLength::backward_weight, &StageBytes::weight_workspace},
    {Op::Recompute, "R", "recompute", 0xbfe0f7, OpRole::Compute, false, Gradients::None, Saved::MadeAgain,
     true, {}, PeerStages::None, {}, op_inputs::kRecompute,
     &StageCost::recompute, &MicroBatchLength::forward, &StageBytes::recompute_workspace},
    {Op::Update, "U", "update", 0x7d8590, OpRole::Update, true, Gradients::None, Saved::None,
     false, {}, PeerStages::None, {}, op_inputs::kUpdate,
     &StageCost::update, nullptr, nullptr},
    {Op::SumGradients, "S", "gradient sum", 0x9a6bb5, OpRole::Sum, true, Gradients::None, Saved::None,
     false, {}, PeerStages::None, {}, op_inputs::kSum,
     &StageCost::sum_gradients, nullptr, nullptr},
    {Op::SendForward, "SEND_F", "send activations", 0x4f86c6, OpRole::Send, false, Gradients::None, Saved::None,
     false, {}, PeerStages::After, Op::RecvForward, op_inputs::kAfterForward,
     nullptr, nullptr, nullptr},
    {Op::RecvForward, "RECV_F", "receive activations", 0x4f86c6, OpRole::Receive, false, Gradients::None, Saved::None,
     false, {}, PeerStages::Before, Op::SendForward, op_inputs::kRecvForward,
     nullptr, nullptr, nullptr},
    {Op::SendBackward, "SEND_B", "send gradients", 0xc8703a, OpRole::Send, false, Gradients::OfInputs, Saved::None,
     false, {}, PeerStages::Before, Op::RecvBackward, op_inputs::kAfterInput,
     nullptr, nullptr, nullptr},
    {Op::RecvBackward, "RECV_B", "receive gradients", 0xc8703a, OpRole::Receive, false, Gradients::OfInputs, Saved::None,
     false, {}, PeerStages::After, Op::SendBackward, op_inputs::kRecvBackward,
     nullptr, nullptr, nullptr},
    {Op::Offload, "OFFLOAD", "offload activations", 0xa3648f, OpRole::Leave, false, Gradients::None, Saved::None,
     false, {}, PeerStages::None, {}, op_inputs::kAfterForward,
     nullptr, nullptr, nullptr},
    {Op::Reload, "RELOAD", "reload activations", 0xa3648f, OpRole::Return, false, Gradients::None, Saved::None,
     false, {}, PeerStages::None, {}, op_inputs::kReload,
     nullptr, nullptr, nullptr},
    {Op::Store, "STORE", "store optimizer states", 0xa3648f, OpRole::Leave, true, Gradients::None, Saved::None,
     false, {}, PeerStages::None, {}, {},
     nullptr, nullptr, nullptr},
    {Op::Load, "LOAD", "load optimizer states", 0xa3648f, OpRole::Return, true, Gradients::None, Saved::None,
     false, {}, PeerStages::None, {}, op_inputs::kLoad,
     nullptr, nullptr, nullptr},
};
// clang-format on

static_assert(std::size(kOpFacts) == static_cast<std::size_t>(kOps), "every operation has one row of facts");

// The first rows are the operations that compute.
inline constexpr std::span<const OpFacts> kComputing(
    kOpFacts, static_cast<std::size_t>(std::ranges::count(kOpFacts, OpRole::Compute, &OpFacts::role)));

constexpr const OpFacts& facts_of(Op op) { return kOpFacts[static_cast<std::size_t>(op)]; }

constexpr std::string_view letters_of(Op op) { return facts_of(op).letters; }
std::optional<Op> op_from(std::string_view letters);
constexpr std::string_view words_of(Op op) { return facts_of(op).words; }

// A set of operations, a bit each: what is asked of every task reads no row.
using OpSet = std::uint32_t;
static_assert(kOps <= 32);
template <class Is>
constexpr OpSet ops_that(Is is) {
    OpSet ops = 0;
    for (const OpFacts& facts : kOpFacts)
        if (is(facts))
            ops |= OpSet{1} << static_cast<unsigned>(facts.op);
    return ops;
}
constexpr bool is_in(Op op, OpSet ops) { return (ops >> static_cast<unsigned>(op) & 1) != 0; }

// F B I W R, which the metrics ideal, busy and span count.
inline constexpr OpSet kComputes = ops_that([](const OpFacts& op) { return op.role == OpRole::Compute; });
inline constexpr OpSet kSending = ops_that([](const OpFacts& op) { return op.role == OpRole::Send; });
inline constexpr OpSet kReceiving = ops_that([](const OpFacts& op) { return op.role == OpRole::Receive; });
// Copies from a device to its host, OFFLOAD and STORE, start as soon as their inputs have ended. The next task of the
// list waits until they have ended. Copies back, RELOAD and LOAD, start when the list has reached them, and the tasks
// that read them wait for their end.
inline constexpr OpSet kLeaving = ops_that([](const OpFacts& op) { return op.role == OpRole::Leave; });
inline constexpr OpSet kReturning = ops_that([](const OpFacts& op) { return op.role == OpRole::Return; });
inline constexpr OpSet kCopying = kLeaving | kReturning;
inline constexpr OpSet kOncePerUpdate = ops_that([](const OpFacts& op) { return op.once_per_update; });
// U and S, which end a mini-batch: they run once on every holder of a stage.
inline constexpr OpSet kClosing =
    ops_that([](const OpFacts& op) { return op.role == OpRole::Update || op.role == OpRole::Sum; });
inline constexpr OpSet kMakesInputGradients =
    kComputes & ops_that([](const OpFacts& op) {
        return op.gradients == Gradients::OfInputs || op.gradients == Gradients::OfBoth;
    });
inline constexpr OpSet kMakesWeightGradients =
    kComputes & ops_that([](const OpFacts& op) {
        return op.gradients == Gradients::OfWeights || op.gradients == Gradients::OfBoth;
    });
// B and W of a joined stage wait for the sum over all of them that their forwards start.
inline constexpr OpSet kWaitsForJoined = ops_that(
    [](const OpFacts& op) { return std::ranges::count(op.inputs, OpInput::From::Joined, &OpInput::from) > 0; });
// The remaining transfers carry activations. The two kinds have separate lanes, sizes and buffers.
inline constexpr OpSet kCarriesGradients =
    (kSending | kReceiving) & ops_that([](const OpFacts& op) { return op.gradients != Gradients::None; });
inline constexpr OpSet kSavesFirst = ops_that([](const OpFacts& op) { return op.saved == Saved::Made; });
inline constexpr OpSet kSavesAgain = ops_that([](const OpFacts& op) { return op.saved == Saved::MadeAgain; });

constexpr bool is_compute(Op op) { return is_in(op, kComputes); }
constexpr bool is_send(Op op) { return is_in(op, kSending); }
constexpr bool is_recv(Op op) { return is_in(op, kReceiving); }
constexpr bool is_transfer(Op op) { return is_in(op, kSending | kReceiving); }
constexpr bool is_copy(Op op) { return is_in(op, kCopying); }
constexpr bool leaves_device(Op op) { return is_in(op, kLeaving); }
constexpr bool returns_to_device(Op op) { return is_in(op, kReturning); }
constexpr bool copies_states(Op op) { return is_in(op, kCopying & kOncePerUpdate); }
constexpr bool runs_once_per_update(Op op) { return is_in(op, kOncePerUpdate); }
// Returns whether an operation only moves data, while the device may compute.
constexpr bool moves_data(Op op) { return is_in(op, kSending | kReceiving | kCopying); }
// Returns whether it moves data to the device: a receive, or a copy back.
constexpr bool brings_data(Op op) { return is_in(op, kReceiving | kReturning); }
constexpr bool is_closing(Op op) { return is_in(op, kClosing); }
constexpr bool makes_input_gradient(Op op) { return is_in(op, kMakesInputGradients); }
constexpr bool makes_weight_gradient(Op op) { return is_in(op, kMakesWeightGradients); }
constexpr bool saves_first(Op op) { return is_in(op, kSavesFirst); }
constexpr bool is_backward(Op op) { return is_in(op, kMakesInputGradients | kMakesWeightGradients); }
constexpr bool carries_gradients(Op op) { return is_in(op, kCarriesGradients); }

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
