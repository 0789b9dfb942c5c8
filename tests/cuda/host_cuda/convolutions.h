// The convolutions of the stand-in: the supported ones, and their results.
#pragma once

#include "tests/cuda/host_cuda/host_cuda.h"

#include <cudnn.h>

#include <cstddef>

namespace host_cuda {

enum class Pass { Forward, Data, Filter };

// NHWC; n of a filter is its number of outputs.
struct Tensor {
    cudnnDataType_t type;
    int n, c, h, w;
    std::size_t count() const { return std::size_t(n) * c * h * w; }
};

struct Convolution {
    Pass pass;
    Tensor x, w, y;
    int pad, stride;
};

inline const Tensor& output_of(const Convolution& c) {
    return c.pass == Pass::Forward ? c.y : c.pass == Pass::Data ? c.x : c.w;
}

bool fits(const Convolution& c);
bool is_built(const Convolution& c, ConvolutionEngine engine);
bool is_launched(ConvolutionEngine engine, bool on_share);
std::size_t workspace_of(const Convolution& c, ConvolutionEngine engine);
void note(const Convolution& c, ConvolutionEngine engine);  // for take_convolutions()

// output = convolution of first and second, where first is w of Data, otherwise x, and second is w of Forward,
// otherwise y.
void convolve(const Convolution& c, ConvolutionEngine engine, const void* first, const void* second, void* output);

}  // namespace host_cuda
