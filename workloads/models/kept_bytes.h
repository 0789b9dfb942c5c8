// What training keeps of each parameter: weights, gradients, master weights and the optimizer's states. Everything that
// asks how many bytes a device holds, sends or updates asks here.
#pragma once

#include "workloads/models/optimizer.h"
#include "workloads/models/precision.h"

namespace pw {

// The bytes of a parameter by what they are for. Without keys of the config, the backends keep each of gradients and
// states in a block as large as the weights: the values here are then blocks instead of bytes.
struct KeptBytes {
    Bytes weight = 1, gradient = 1;
    Bytes master = 0;  // the copy that the optimizer updates, 0 where it updates the weights themselves
    Bytes states = 1;  // all states of the optimizer together
};

// Muon updates the matrices of blocks. Embedding, head, norms and biases have the optimizer OptimizerFacts::other.
enum class ParameterForm { BlockMatrix, Other };

// Returns the bytes by what the config says, else by what the optimizer usually keeps, else by the precision.
// `gradient` is what the training program sums in.
constexpr KeptBytes kept_bytes(const KeptTypes& said, Precision precision, OptimizerKind optimizer, Bytes gradient,
                               ParameterForm form = ParameterForm::BlockMatrix) {
    const OptimizerFacts& facts = facts_of(optimizer);
    const KeptTypes types = said.or_else(facts.usual);
    const NumberBytes& numbers = bytes_of(precision);
    const int states = facts_of(form == ParameterForm::Other ? facts.other.value_or(optimizer) : optimizer).states;
    const auto bytes_or = [](const auto& type, Bytes usual) { return type ? bytes_of(*type) : usual; };
    return {.weight = bytes_or(types.weights, numbers.weight),
            .gradient = bytes_or(types.gradients, gradient),
            .master = bytes_or(types.master, numbers.master),
            .states = bytes_or(types.momentum, kFloatBytes) +
                      (states > 1 ? bytes_or(types.variance, kFloatBytes) : Bytes{0})};
}

// Returns what the backends keep.
constexpr KeptBytes kept_in_blocks(OptimizerKind optimizer) {
    return {.weight = 1, .gradient = 1, .master = 0, .states = facts_of(optimizer).states};
}

// Returns the bytes that an update moves for a parameter: it reads gradient, states and what it updates, and writes
// states, what it updates, and the weight.
constexpr Bytes update_bytes(const KeptBytes& kept) {
    return kept.gradient + 2 * kept.states + (kept.master > 0 ? 2 * kept.master + kept.weight : 2 * kept.weight);
}

// What a device keeps from step to step. The master weights are among the states.
template <class Amount>
struct HeldOf {
    Amount weights{}, gradients{}, states{};  // weights: trained, of one version
    Amount frozen{};                          // weights that are not trained
};
using HeldState = HeldOf<Bytes>;

// Returns the bytes of `all` parameters of a device. The devices that have the same parameters divide, by `zero` (ZeRO,
// SC 2020), 1: the states and master weights, 2: also the gradients, 3: also the weights. `part` is the share of a
// device.
template <class Amount>
constexpr HeldOf<Amount> held_state(Amount all, Amount part, const KeptBytes& kept, int zero) {
    const auto held = [&](Bytes each, int since) { return static_cast<Amount>(each) * (zero >= since ? part : all); };
    return {held(kept.weight, 3), held(kept.gradient, 2), held(kept.master + kept.states, 1)};
}

// The same for layers whose weights are `weights` bytes, and `part` bytes of a device's share.
constexpr HeldState held_of_weights(Bytes weights, Bytes part, const KeptBytes& kept, int zero) {
    return held_state(weights / kept.weight, part / kept.weight, kept, zero);
}

}  // namespace pw
