#include "schedules/memory/held.h"

#include "schedules/plan/op.h"

#include <algorithm>

namespace pw {

std::array<HeldTensor, 10> activations_of(const StageBytes& bytes, bool again, bool whole) {
    using enum Moment;
    constexpr MemoryKind kActivation = MemoryKind::Activations;
    const Bytes made_again = bytes.until_input + bytes.until_weight;
    return {{{BufferUse::Data, MemoryKind::Inputs, bytes.data, Forward, Weight},
             {BufferUse::UntilInput, kActivation, bytes.until_input, Again, Input},
             {BufferUse::UntilWeight, kActivation, bytes.until_weight, Again, Weight},
             {BufferUse::FirstUntilAgain, kActivation, bytes.first_until_again, Forward, Again},
             {BufferUse::FirstUntilInput, kActivation, bytes.first_until_input, Forward, Input},
             {BufferUse::FirstUntilWeight, kActivation, bytes.first_until_weight, Forward, Weight},
             {BufferUse::OffloadedUntilInput, kActivation, bytes.offloaded_until_input, Forward, Input},
             {BufferUse::OffloadedUntilWeight, kActivation, bytes.offloaded_until_weight, Forward, Weight},
             {BufferUse::Dropped, kActivation, again ? made_again : 0, Forward, Forward},
             {BufferUse::GradientKept, kActivation, whole ? 0 : bytes.gradient_kept, Input, Weight}}};
}

HeldTensor landing_of(const EdgeBytes& edge, bool forward) {
    if (forward)
        return {BufferUse::LandingForward, MemoryKind::Inputs, edge.forward, Moment::Forward,
                edge.forward_until_weight  ? Moment::Weight
                : edge.forward_until_input ? Moment::Input
                                           : Moment::Again};
    return {BufferUse::LandingBackward, MemoryKind::Communication, edge.backward, Moment::Input,
            edge.backward_until_weight ? Moment::Weight : Moment::Input};
}

namespace {

// Returns the bytes of gathered weights and unsummed gradients during a task.
Bytes exchanged_in(const Task& task, const Costs& costs) {
    if (costs.exchanged.empty())
        return 0;
    const Costs::Exchanged& stage = costs.exchanged[static_cast<std::size_t>(task.stage)];
    const bool makes_gradients = task.op == Op::Backward || task.op == Op::BackwardWeight;
    return (task.op == Op::BackwardWeight ? 0 : stage.weights) + (makes_gradients ? stage.gradients : 0);
}

}  // namespace

// The tensors in a workspace are as long as a slice.
Bytes workspace_of(Bytes whole, const StageBytes& bytes, const Costs& costs, double length) {
    const Bytes uncut = costs.slices.empty() ? 0 : std::min(whole, bytes.uncut_workspace);
    return uncut + scaled_bytes(whole - uncut, length);
}

Bytes workspace_of(const Task& task, const Costs& costs) {
    const StageBytes& bytes = costs.bytes[static_cast<std::size_t>(task.stage)];
    Bytes StageBytes::*const need = facts_of(task.op).workspace;
    if (need == nullptr)
        return 0;
    return exchanged_in(task, costs) +
           workspace_of(bytes.*need, bytes, costs, costs.length_of(task.microbatch, task.stage).bytes);
}

}  // namespace pw
