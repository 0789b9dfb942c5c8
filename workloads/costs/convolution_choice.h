// How a library computes the passes of convolutions, if timing decided it. A profile stores the choices, so that a run
// uses the kernels that the prediction was measured with.
#pragma once

#include "workloads/text/choice.h"

#include <compare>
#include <cstdint>

namespace pw {

enum class ConvolutionPass : std::uint8_t { Forward, BackwardInput, BackwardWeight };
template <>
inline constexpr Choice<ConvolutionPass> kChoices<ConvolutionPass>[] = {
    {"forward", ConvolutionPass::Forward},
    {"backward_input", ConvolutionPass::BackwardInput},
    {"backward_weight", ConvolutionPass::BackwardWeight}};

// A shape is a pass over a micro-batch on a device with `multiprocessors` multiprocessors.
struct ConvolutionShape {
    ConvolutionPass pass = ConvolutionPass::Forward;
    int samples = 1;
    int channels = 1, height = 1, width = 1;  // extents of a sample of the input
    int outputs = 1, kernel = 1, stride = 1, padding = 0;
    int multiprocessors = 1;
    auto operator<=>(const ConvolutionShape&) const = default;
};

struct ConvolutionChoice {
    ConvolutionShape shape;
    int plan = 0;  // the place in the list of what cuDNN proposes for the shape
    bool operator==(const ConvolutionChoice&) const = default;
};

}  // namespace pw
