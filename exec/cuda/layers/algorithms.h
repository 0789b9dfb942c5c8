// Decides how cuDNN does the passes of convolutions. A pass of a shape is chosen once in a process, so that equal
// layers and all devices of a size run the same kernels, and timing them is not repeated. Choices that timing has made
// go into a profile; a run takes those of its profile.
#pragma once

#include "exec/cuda/device/device.h"
#include "workloads/costs/convolution_choice.h"

#include <functional>
#include <vector>

namespace pw::cuda {

cudnnMathType_t math_type(ConvolutionMath math);

// Returns what a precision may compute with, the preferred one first. bf16 needs no tensor-op math to use tensor cores,
// but some shapes may have it only.
std::vector<ConvolutionMath> maths_of(Precision precision);

struct WayRequest {
    ConvolutionShape shape;
    Precision precision;
    bool timed;  // else it follows from the shape
};

// Returns the way that was chosen before, if `is_possible`, else what `choose` says. It serves one caller at a time:
// timings must not disturb each other.
ConvolutionWay way_of(const WayRequest& request, const std::function<bool(const ConvolutionWay&)>& is_possible,
                      const std::function<ConvolutionWay()>& choose);

// Takes the choices of a profile: they count as chosen.
void take_ways(const std::vector<ConvolutionChoice>& choices, Precision precision);
// Returns all ways that timing has chosen.
std::vector<ConvolutionChoice> timed_ways(Precision precision);
// Returns how many of the taken ways turned out not to be possible since the last call.
int count_impossible_ways();
void forget_ways();  // for tests

}  // namespace pw::cuda
