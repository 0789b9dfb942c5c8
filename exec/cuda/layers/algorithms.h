// The types of arithmetic that cuDNN's convolutions may use.
#pragma once

#include "exec/cuda/device/device.h"
#include "workloads/costs/convolution_choice.h"

#include <vector>

namespace pw::cuda {

cudnnMathType_t math_type(ConvolutionMath math);

// Returns the kinds of math that a precision may use, the preferred one first. bf16 prefers tensor-op math: without it
// gradients of 64 channels take 10 to 115 times as long on an H100 with cuDNN 9.19 (results/h100/probe.txt). For some
// shapes cuDNN may have only the default.
std::vector<ConvolutionMath> maths_of(Precision precision);

}  // namespace pw::cuda
