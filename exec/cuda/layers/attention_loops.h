// The kernels that attention needs in addition to cuBLAS. They work on squares of `length` rows by `length`
// columns, one per head, in which row i attends to the columns up to i.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace pw::cuda {

struct Squares {
    unsigned heads, length;

    std::int64_t elements() const { return std::int64_t{heads} * length * length; }
};

std::int64_t softmax_scratch(const Squares& squares);  // the bytes of `scratch` of both functions
// Computes the probabilities of every row's scores, with zeros after the diagonal. They may overwrite the scores.
template <class T>
void causal_softmax(cudaStream_t stream, const Squares& squares, const float* scores, T* probabilities,
                    std::byte* scratch);

// Computes the gradient of the scores from the gradient of the probabilities, which it may overwrite.
template <class T>
void causal_softmax_gradient(cudaStream_t stream, const Squares& squares, const T* probabilities, const float* gradient,
                             T* score_gradient, std::byte* scratch);

// Computes to[i] = from[i], rounded.
void round_values(cudaStream_t stream, const float* from, __nv_bfloat16* to, std::int64_t count);

}  // namespace pw::cuda
