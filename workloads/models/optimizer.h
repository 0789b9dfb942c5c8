// The optimizers: a row of facts each. Their kernels are the backends' (exec/kernels.h).
#pragma once

#include "workloads/models/number_types.h"
#include "workloads/text/choice.h"

#include <array>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string_view>

namespace pw {

enum class OptimizerKind { Sgd, AdamW, AdamW8Bit, AdamWBf16, Muon };
template <>
inline constexpr Choice<OptimizerKind> kChoices<OptimizerKind>[] = {{"sgd", OptimizerKind::Sgd},
                                                                    {"adamw", OptimizerKind::AdamW},
                                                                    {"adamw-8bit", OptimizerKind::AdamW8Bit},
                                                                    {"adamw-bf16", OptimizerKind::AdamWBf16},
                                                                    {"muon", OptimizerKind::Muon}};

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
    bool has_kernels = true;                  // of the backends
    KeptTypes usual = {};                     // what programs with this optimizer keep where the config does not say it
    std::optional<OptimizerKind> other = {};  // updates parameters that are not matrices of blocks

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
    // Dettmers et al., 8-bit Optimizers via Block-wise Quantization (arXiv 2110.02861, bitsandbytes). The scales of
    // blocks are not counted.
    {.kind = OptimizerKind::AdamW8Bit,
     .states = 2,
     .suffixes = {".state1", ".state2"},
     .has_momentum = false,
     .has_averages = true,
     .names = {},
     .has_kernels = false,
     .usual = {.momentum = NumberType::Int8, .variance = NumberType::Int8}},
    // PyTorch's AdamW for a model in bf16: states have the type of the weights, and there is no copy in fp32.
    {.kind = OptimizerKind::AdamWBf16,
     .states = 2,
     .suffixes = {".exp_avg", ".exp_avg_sq"},
     .has_momentum = false,
     .has_averages = true,
     .names = {},
     .has_kernels = false,
     .usual = {.weights = NumberType::Bf16,
               .gradients = NumberType::Bf16,
               .master = MasterType::None,
               .momentum = NumberType::Bf16,
               .variance = NumberType::Bf16}},
    // Jordan et al. (KellerJordan/Muon) and Moonlight (arXiv 2502.16982): a momentum for the matrices of blocks.
    {.kind = OptimizerKind::Muon,
     .states = 1,
     .suffixes = {".momentum_buffer"},
     .has_momentum = false,  // weights follow the orthogonalized momentum
     .has_averages = true,   // of the other parameters
     .names = {.megatron = "muon"},
     .has_kernels = false,
     .other = OptimizerKind::AdamW},
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

}  // namespace pw
