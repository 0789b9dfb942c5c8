// The kernels that attention needs beside cuBLAS: they work on squares of `length` rows by `length` columns, one per
// head, in which row i sees the columns up to i.
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

std::int64_t softmax_scratch(const Squares& squares);  // bytes that both of these work in

// Computes the probabilities of every row's scores, zeros behind the diagonal; they may be written over the scores.
template <class T>
void causal_softmax(cudaStream_t stream, const Squares& squares, const float* scores, T* probabilities,
                    std::byte* scratch);

// Computes the gradient of the scores from that of the probabilities; it may be written over that.
template <class T>
void causal_softmax_gradient(cudaStream_t stream, const Squares& squares, const T* probabilities, const float* gradient,
                             T* score_gradient, std::byte* scratch);

}  // namespace pw::cuda
