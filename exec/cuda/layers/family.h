// Kernels of CudaKernels for work outside layers.
#pragma once

#include "workloads/data/sample.h"

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace pw::cuda {

// A data set on the device, as in workloads/data/dataset.h.
struct Tap {
    int low, high;
    float weight;  // weight of `high`
};
struct Normalisation {
    float scale, shift;
};
struct StoredImages {
    const unsigned char* pixels = nullptr;  // sample after sample, planar
    const Tap *rows = nullptr, *columns = nullptr;
    const Normalisation* scales = nullptr;
    int channels = 0, written_channels = 0;  // zeros fill the written channels after the image's own
    int stored_channels = 0, stored_height = 0, stored_width = 0, height = 0, width = 0;
};

// Reads `count` samples as NHWC, with the values of Dataset::read_at().
template <class T>
void read_images(cudaStream_t stream, const StoredImages& images, const Sample* samples, std::int64_t count, T* out);

// Reads `count` sequences, as numbers, from a stream of tokens that is divided into sequences of `length`.
void read_tokens(cudaStream_t stream, const std::int32_t* tokens, std::int64_t length, const Sample* samples,
                 std::int64_t count, float* out);

// Computes to[i] += from[i]. `bytes` is a multiple of 16.
template <class T>
void add_tensor(cudaStream_t stream, const T* from, T* to, std::int64_t bytes);

// The summands of to[i] = from[0][i] + from[1][i] + ..., left to right. `to` may be a summand. `count` is a multiple
// of 4.
struct Summands {
    static constexpr int kMost = 64;
    const float* from[kMost];
    int count;
};
void sum_blocks(cudaStream_t stream, const Summands& summands, float* to, std::int64_t count);

// As Kernels::clip_factor().
void clip_factor(cudaStream_t stream, const double* squares, std::int64_t count, double largest, double* factor);
// Computes values[i] *= *factor, in device memory. `count` is a multiple of 4.
void scale(cudaStream_t stream, const double* factor, float* values, std::int64_t count);

}  // namespace pw::cuda
