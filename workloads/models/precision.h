// The precision of a backend's arithmetic, and the bytes of its numbers.
#pragma once

#include "workloads/text/choice.h"
#include "workloads/units.h"

#include <array>
#include <cstddef>

namespace pw {

// With Fp32, there is no TF32 anywhere. With Tf32, matrix products and convolutions are in TF32. With Bf16, tensors and
// the weights that products read are bf16. Sums, master weights, batch norm and gradients of weights are fp32.
//
// The remaining precisions are for costs only, no backend computes in them: Fp16 has the sizes and rates of bf16. With
// Fp8, Mxfp8 and Nvfp4, products of linear layers are in 8 or 4 bits, by scales of tensors or of blocks. Everything
// else is as in bf16.
enum class Precision { Fp32, Tf32, Bf16, Fp16, Fp8, Mxfp8, Nvfp4 };
template <>
inline constexpr Choice<Precision> kChoices<Precision>[] = {
    {"fp32", Precision::Fp32}, {"tf32", Precision::Tf32},   {"bf16", Precision::Bf16},  {"fp16", Precision::Fp16},
    {"fp8", Precision::Fp8},   {"mxfp8", Precision::Mxfp8}, {"nvfp4", Precision::Nvfp4}};

inline constexpr Bytes kFloatBytes = 4;  // bytes of an fp32 number: statistics, losses, probabilities

// The bytes of a number, by what the number belongs to.
struct NumberBytes {
    Bytes activation;  // tensors between layers, and their gradients
    Bytes weight;      // weights as products read them
    Bytes master;      // the copy that the optimizer updates, 0 where it updates the weights themselves
    bool has_kernels;  // of a backend

    // Returns the bytes of one trained parameter.
    constexpr Bytes parameter() const { return weight + master; }
};

inline constexpr std::array<NumberBytes, 7> kNumberBytes = {{
    {.activation = 4, .weight = 4, .master = 0, .has_kernels = true},   // Fp32
    {.activation = 4, .weight = 4, .master = 0, .has_kernels = true},   // Tf32
    {.activation = 2, .weight = 2, .master = 4, .has_kernels = true},   // Bf16
    {.activation = 2, .weight = 2, .master = 4, .has_kernels = false},  // Fp16
    {.activation = 2, .weight = 2, .master = 4, .has_kernels = false},  // Fp8
    {.activation = 2, .weight = 2, .master = 4, .has_kernels = false},  // Mxfp8
    {.activation = 2, .weight = 2, .master = 4, .has_kernels = false},  // Nvfp4
}};
static_assert(kNumberBytes.size() == std::size(kChoices<Precision>), "every precision has its row");

// Returns whether products of linear layers have fewer bits than everything else.
constexpr bool is_low(Precision precision) {
    return precision == Precision::Fp8 || precision == Precision::Mxfp8 || precision == Precision::Nvfp4;
}

constexpr const NumberBytes& bytes_of(Precision precision) { return kNumberBytes[static_cast<std::size_t>(precision)]; }

}  // namespace pw
