// The kernels that layers with parameters need in addition to the libraries.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace pw::cuda {

// Computes output[n][o] += bias[o].
template <class T>
void add_bias(cudaStream_t stream, const float* bias, T* output, std::int64_t samples, std::int64_t outputs);

// Computes bias_gradient[o] (+)= sum over n of output_gradient[n][o]. Without `accumulate` it writes zeros from
// there up to `padded`.
template <class T>
void sum_bias_gradient(cudaStream_t stream, const T* output_gradient, float* bias_gradient, std::int64_t samples,
                       std::int64_t outputs, std::int64_t padded, bool accumulate);

// Returns the number of shares: many rows are summed in two steps, first the rows of each share, then the shares.
// The number depends on the shape only.
constexpr std::int64_t shares_of_rows(std::int64_t rows) {
    return rows <= 64 ? 1 : rows < 2048 ? (rows + 15) / 16 : 128;
}

// Computes lines[s][o] = sum over n = s, s + shares, ... of output_gradient[n][o].
template <class T>
void sum_shares(cudaStream_t stream, const T* output_gradient, float* lines, std::int64_t samples, std::int64_t outputs,
                std::int64_t shares);

// Computes gradient[i] (+)= made[i] for `count` values. Both have room for `padded` values, a multiple of 8.
// Without `accumulate` it writes zeros from `count` up to `padded`.
template <class T>
void add_weight_gradient(cudaStream_t stream, const T* made, float* gradient, std::int64_t count, std::int64_t padded,
                         bool accumulate);

}  // namespace pw::cuda
