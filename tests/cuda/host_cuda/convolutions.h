// The convolutions of the stand-in: the supported ones, and their results.
#pragma once

#include "tests/cuda/host_cuda/host_cuda.h"

#include <cudnn.h>

#include <cstddef>

// Tensor: n c h w; filter: k c h w in the same places.
struct cudnnTensorStruct {
    cudnnDataType_t type;
    cudnnTensorFormat_t format;
    int n, c, h, w;
    std::size_t count() const { return std::size_t(n) * c * h * w; }
    std::size_t bytes() const { return count() * (type == CUDNN_DATA_FLOAT ? 4 : 2); }
};
struct cudnnFilterStruct : cudnnTensorStruct {};

struct cudnnConvolutionStruct {
    int pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w;
    cudnnConvolutionMode_t mode;
    cudnnDataType_t compute;
    cudnnMathType_t math;
};

namespace host_cuda {

enum class Pass { Forward, Data, Filter };

// The descriptors as they are at the call.
struct Convolution {
    Pass pass;
    cudnnTensorStruct x, w, y;
    cudnnConvolutionStruct how;
    int algorithm;
};

inline const cudnnTensorStruct& output_of(const Convolution& c) {
    return c.pass == Pass::Forward ? c.y : c.pass == Pass::Data ? c.x : c.w;
}

// Returns whether this one is supported, as cuDNN does.
cudnnStatus_t check(const Convolution& c);
std::size_t workspace_of(const Convolution& c);
bool is_timed(const Convolution& c);  // counts a timing; false if it fails
bool is_launched(const Convolution& c, bool on_share);
void note(const Convolution& c);  // for take_convolutions()

// output = a * convolution of first and second + b * output.
void convolve(const Convolution& c, float a, const void* first, const void* second, float b, void* output);

}  // namespace host_cuda
