// The work of an add on eight elements, which share a byte of its mask. The add runs alone, or together with batch
// norms.
#pragma once

#include "exec/cuda/layers/packs.h"
#include "exec/kernels.h"

namespace pw::cuda {

// Sets `sum` to left + right, with `relu` clamped to 0 from below. Returns a bit per element: whether it passes a
// ReLU.
template <class T>
__device__ inline unsigned char put_sum(const Pack<float, 8>& left, const Pack<float, 8>& right, bool relu,
                                        Pack<T, 8>& sum) {
    Pack<float, 8> all;
    unsigned passed = 0;
    for (int k = 0; k < 8; ++k) {
        const float value = left.values[k] + right.values[k];
        passed |= (value <= 0 ? 0u : 1u) << k;
        all.values[k] = relu && value <= 0 ? 0 : value;
    }
    sum = rounded<T>(all);
    return static_cast<unsigned char>(passed);
}

// Keeps the gradient of elements whose bits of `passed` are 1, and sets the remaining elements to zero.
template <class T, int kWidth>
__device__ inline void keep_passed(Pack<T, kWidth>& gradient, unsigned passed) {
    for (int k = 0; k < kWidth; ++k)
        if (!(passed >> k & 1))
            gradient.values[k] = rounded<T>(0);
}

// F of an add that runs together with batch norms. `channels` is a multiple of 8. `mask` may be null.
template <class T>
void add_normalised(cudaStream_t stream, const LayerArgs& args, std::int64_t channels, std::int64_t rows, bool relu,
                    unsigned char* mask);

}  // namespace pw::cuda
