// The types in which training keeps the values of a parameter.
#pragma once

#include "workloads/text/choice.h"
#include "workloads/units.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

namespace pw {

enum class NumberType : std::uint8_t { Fp32, Bf16, Fp16, Fp8, Int8 };
template <>
inline constexpr Choice<NumberType> kChoices<NumberType>[] = {{"fp32", NumberType::Fp32},
                                                              {"bf16", NumberType::Bf16},
                                                              {"fp16", NumberType::Fp16},
                                                              {"fp8", NumberType::Fp8},
                                                              {"int8", NumberType::Int8}};
inline constexpr Bytes kTypeBytes[] = {4, 2, 2, 1, 1};
static_assert(std::size(kTypeBytes) == std::size(kChoices<NumberType>), "every type has its size");
constexpr Bytes bytes_of(NumberType type) { return kTypeBytes[static_cast<std::size_t>(type)]; }

// The copy of the weights that an optimizer updates. None: the optimizer updates the weights themselves. Fp16 is also
// the size of the 16 bits that fp32 has more than bf16, which Megatron-LM stores instead of the copy.
enum class MasterType : std::uint8_t { Fp32, Bf16, Fp16, None };
template <>
inline constexpr Choice<MasterType> kChoices<MasterType>[] = {
    {"fp32", MasterType::Fp32}, {"bf16", MasterType::Bf16}, {"fp16", MasterType::Fp16}, {"none", MasterType::None}};
inline constexpr Bytes kMasterBytes[] = {4, 2, 2, 0};
static_assert(std::size(kMasterBytes) == std::size(kChoices<MasterType>), "every type has its size");
constexpr Bytes bytes_of(MasterType type) { return kMasterBytes[static_cast<std::size_t>(type)]; }

// The types of what training keeps, as far as they are said.
struct KeptTypes {
    std::optional<NumberType> weights = {}, gradients = {};
    std::optional<MasterType> master = {};
    std::optional<NumberType> momentum = {};  // the first state of the optimizer
    std::optional<NumberType> variance = {};  // the second state

    bool operator==(const KeptTypes&) const = default;
    constexpr bool any() const { return weights || gradients || master || momentum || variance; }
    // Returns these types, and the usual types where these are absent.
    constexpr KeptTypes or_else(const KeptTypes& usual) const {
        return {weights ? weights : usual.weights, gradients ? gradients : usual.gradients,
                master ? master : usual.master, momentum ? momentum : usual.momentum,
                variance ? variance : usual.variance};
    }
};

}  // namespace pw
