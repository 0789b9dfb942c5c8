// The types of arithmetic that cuDNN's convolutions may use.
#pragma once

#include "exec/cuda/device/device.h"
#include "workloads/costs/convolution_choice.h"

#include <vector>

namespace pw::cuda {

cudnnMathType_t math_type(ConvolutionMath math);

// Returns what a precision may compute with, the preferred one first. bf16 needs no tensor-op math to use tensor cores,
// but some shapes may have it only.
std::vector<ConvolutionMath> maths_of(Precision precision);

}  // namespace pw::cuda
