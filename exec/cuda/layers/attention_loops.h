// What attention leaves to own kernels: squares of `length` rows by `length` columns, one per head, in which row i sees
// the columns up to i.
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

// Probabilities of every row's scores, zeros behind the diagonal; may take the place of the scores.
template <class T>
void causal_softmax(cudaStream_t stream, const Squares& squares, const float* scores, T* probabilities,
                    std::byte* scratch);

// The gradient of the scores from that of the probabilities; may take its place.
template <class T>
void causal_softmax_gradient(cudaStream_t stream, const Squares& squares, const T* probabilities, const float* gradient,
                             T* score_gradient, std::byte* scratch);

}  // namespace pw::cuda
