// Adapters of low rank in parallel with frozen matrices (LoRA, arXiv 2106.09685).
#pragma once

#include "workloads/text/choice.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pw {

// The matrices of a block that get an adapter, in the words of Megatron-LM.
enum class LoraTarget : std::uint8_t {
    Qkv,   // queries, keys and values in one
    Proj,  // of the output of attention
    Fc1,   // the first products of an MLP, in one
    Fc2,   // the last product of an MLP
};
template <>
inline constexpr Choice<LoraTarget> kChoices<LoraTarget>[] = {
    {"qkv", LoraTarget::Qkv}, {"proj", LoraTarget::Proj}, {"fc1", LoraTarget::Fc1}, {"fc2", LoraTarget::Fc2}};

// An adapter of a matrix [inputs, outputs] is two matrices [inputs, rank] and [rank, outputs]. They alone are trained.
struct Lora {
    int rank = 0;
    std::vector<LoraTarget> targets = {LoraTarget::Qkv, LoraTarget::Proj, LoraTarget::Fc1, LoraTarget::Fc2};
    bool operator==(const Lora&) const = default;

    bool has(LoraTarget target) const { return std::ranges::find(targets, target) != targets.end(); }
};

}  // namespace pw
