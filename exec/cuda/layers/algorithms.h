// The types of arithmetic that cuDNN's convolutions may use.
#pragma once

#include "exec/cuda/device/device.h"
#include "workloads/costs/convolution_choice.h"

#include <vector>

namespace pw::cuda {

cudnnMathType_t math_type(ConvolutionMath math);

// Returns the kinds of math that a precision may use, the preferred one first. bf16 uses tensor cores without
// tensor-op math, but for some shapes cuDNN may have only that.
std::vector<ConvolutionMath> maths_of(Precision precision);

}  // namespace pw::cuda
