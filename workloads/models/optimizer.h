// The optimizers: a row of facts each. Their kernels are the backends' (exec/kernels.h).
#pragma once

#include "workloads/text/choice.h"
#include "workloads/units.h"

#include <array>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace pw {

enum class OptimizerKind { Sgd, AdamW };
template <>
inline constexpr Choice<OptimizerKind> kChoices<OptimizerKind>[] = {{"sgd", OptimizerKind::Sgd},
                                                                    {"adamw", OptimizerKind::AdamW}};

// What training programs call an optimizer. Empty: the program does not have it.
struct OptimizerNames {
    std::string_view megatron = {}, deepspeed = {}, torchtitan = {};
};

struct OptimizerFacts {
    OptimizerKind kind;
    // Values that are kept for each parameter from one update to the next: one block as large as the gradients for
    // each.
    int states;
    // By state: what follows the parameter's name in the name of the state's tensor in a checkpoint.
    std::array<std::string_view, 2> suffixes;
    // Whether the first state is a momentum: weights - rate * momentum are the weights an update later, if gradients
    // stay as they are.
    bool has_momentum;
    bool has_averages;  // running averages of the gradients and of their squares: takes training.betas and epsilon
    OptimizerNames names;

    // How often an update passes over a block as large as the parameters: it reads weights, gradients and states, and
    // writes weights and states.
    constexpr int passes() const { return 3 + 2 * states; }
};

inline constexpr OptimizerFacts kOptimizers[] = {
    {.kind = OptimizerKind::Sgd,
     .states = 1,
     .suffixes = {""},
     .has_momentum = true,
     .has_averages = false,
     .names = {.megatron = "sgd", .deepspeed = "SGD"}},
    {.kind = OptimizerKind::AdamW,
     .states = 2,
     .suffixes = {".exp_avg", ".exp_avg_sq"},  // PyTorch's names
     .has_momentum = false,
     .has_averages = true,
     .names = {.megatron = "adam", .deepspeed = "AdamW", .torchtitan = "AdamW"}},
};

constexpr bool are_in_order() {
    for (std::size_t row = 0; row < std::size(kOptimizers); ++row)
        if (kOptimizers[row].kind != static_cast<OptimizerKind>(row))
            return false;
    return true;
}
static_assert(are_in_order() && std::size(kOptimizers) == std::size(kChoices<OptimizerKind>),
              "every optimizer has its row, in the order of the enum");

constexpr const OptimizerFacts& facts_of(OptimizerKind kind) { return kOptimizers[static_cast<std::size_t>(kind)]; }

// What training keeps besides weights. Gradients and each state of the optimizer lie as the weights do, in a block as
// large.
struct TrainingBytes {
    Bytes gradients, states;
};
constexpr TrainingBytes training_bytes(Bytes weights, OptimizerKind kind) {
    return {weights, facts_of(kind).states * weights};
}

// What a device keeps of a stage from step to step. The devices that have the stage divide, by `zero` (ZeRO, SC 2020),
// 1: the states of the optimizer, 2: also the gradients, 3: also the weights. `part` is the bytes of weights of a
// device.
struct HeldState {
    Bytes weights, gradients, states;
};
constexpr HeldState held_state(Bytes weights, Bytes part, OptimizerKind kind, int zero) {
    return {zero >= 3 ? part : weights, training_bytes(zero >= 2 ? part : weights, kind).gradients,
            training_bytes(zero >= 1 ? part : weights, kind).states};
}

}  // namespace pw
