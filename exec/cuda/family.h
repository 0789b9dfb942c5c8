// Own kernels behind CudaKernels: what is no layer.
#pragma once

#include "workloads/sample.h"

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace pw::cuda {

// A data set on the device, as workloads/dataset.h describes it.
struct Tap {
    int low, high;
    float weight;  // of `high`
};
struct Normalisation {
    float scale, shift;
};
struct StoredImages {
    const unsigned char* pixels = nullptr;  // sample after sample, planar
    const Tap *rows = nullptr, *columns = nullptr;
    const Normalisation* scales = nullptr;
    int channels = 0, stored_channels = 0, stored_height = 0, stored_width = 0, height = 0, width = 0;
};

// `count` samples, NHWC. What Dataset::read_at computes.
template <class T>
void read_images(cudaStream_t stream, const StoredImages& images, const Sample* samples, std::int64_t count, T* out);

// Of a stream of tokens that is cut into sequences of `length`, `count` of them, as numbers.
void read_tokens(cudaStream_t stream, const std::int32_t* tokens, std::int64_t length, const Sample* samples,
                 std::int64_t count, float* out);

// to[i] += from[i]; `bytes` is a multiple of 16.
template <class T>
void add_tensor(cudaStream_t stream, const T* from, T* to, std::int64_t bytes);

// to[i] = from[0][i] + from[1][i] + ..., left to right; `to` may be one of them. `count` is a multiple of 4.
struct Summands {
    static constexpr int kMost = 64;
    const float* from[kMost];
    int count;
};
void sum_blocks(cudaStream_t stream, const Summands& summands, float* to, std::int64_t count);

// See Kernels::clip_factor.
void clip_factor(cudaStream_t stream, const double* squares, std::int64_t count, double largest, double* factor);
// values[i] *= *factor, in device memory. `count` is a multiple of 4.
void scale(cudaStream_t stream, const double* factor, float* values, std::int64_t count);

// *sum = sum of values[i]^2, in an order that `count` alone decides. `count` is a multiple of 4; `partials` has
// room for kPartials.
inline constexpr std::int64_t kFirstPartials = 16384, kLastPartials = 128;
inline constexpr std::int64_t kPartials = kFirstPartials + kLastPartials;
void sum_squares(cudaStream_t stream, const float* values, std::int64_t count, double* partials, double* sum);

// See Sgd in exec/kernels.h. `count` is a multiple of 4; `rounded_weights` gets a copy unless it is null;
// `new_weights` may be `weights`.
struct Rates {
    float learning_rate, momentum, weight_decay;
};
void momentum_update(cudaStream_t stream, const Rates& rates, const float* weights, const float* gradient,
                     float* momentum, float* new_weights, __nv_bfloat16* rounded_weights, std::int64_t count);

// out[i] = weights[i] - factor * momentum[i]; counts and copies as above.
void predict_weights(cudaStream_t stream, const float* weights, const float* momentum, float factor, float* out,
                     __nv_bfloat16* rounded_weights, std::int64_t count);

}  // namespace pw::cuda
