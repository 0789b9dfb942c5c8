// The choice of cuDNN's algorithms for the passes of convolutions. The choice for a shape is made once per process,
// so that equal layers and all devices of a size run the same kernels, and timings are not repeated. Choices by
// timing are stored in a profile; a run takes those of its profile.
#pragma once

#include "exec/cuda/device/device.h"
#include "workloads/costs/convolution_choice.h"

#include <functional>
#include <vector>

namespace pw::cuda {

cudnnMathType_t math_type(ConvolutionMath math);

// Returns the kinds of math that a precision may use, the preferred one first. bf16 uses tensor cores without
// tensor-op math, but for some shapes cuDNN may have only that.
std::vector<ConvolutionMath> maths_of(Precision precision);

struct WayRequest {
    ConvolutionShape shape;
    Precision precision;
    bool timed;  // false: the way follows from the shape
};

// Returns the way that was chosen earlier, if `is_possible`, otherwise that of `choose`. Callers run one at a time,
// so that timings do not disturb each other.
ConvolutionWay way_of(const WayRequest& request, const std::function<bool(const ConvolutionWay&)>& is_possible,
                      const std::function<ConvolutionWay()>& choose);

// Stores the choices of a profile: they count as chosen.
void take_ways(const std::vector<ConvolutionChoice>& choices, Precision precision);
// Returns all ways that timing has chosen.
std::vector<ConvolutionChoice> timed_ways(Precision precision);
// Returns the number of stored ways that have turned out to be impossible since the last call.
int count_impossible_ways();
void forget_ways();  // for tests

}  // namespace pw::cuda
