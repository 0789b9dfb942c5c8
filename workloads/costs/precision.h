// The precision of a backend's arithmetic.
#pragma once

#include "workloads/text/choice.h"

namespace pw {

// With Fp32, there is no TF32 anywhere. With Tf32, matrix products and convolutions are in TF32. With Bf16, tensors and
// the weights that products read are bf16; sums, master weights, batch norm and gradients of weights are fp32.
enum class Precision { Fp32, Tf32, Bf16 };
template <>
inline constexpr Choice<Precision> kChoices<Precision>[] = {
    {"fp32", Precision::Fp32}, {"tf32", Precision::Tf32}, {"bf16", Precision::Bf16}};

}  // namespace pw
