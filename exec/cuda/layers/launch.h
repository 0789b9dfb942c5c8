// The launch of kernels: there is a thread per item, and threads beyond the last item do nothing.
#pragma once

#include "exec/cuda/device/check.h"

#include <cuda_runtime.h>

#include <cstdint>

namespace pw::cuda {

inline constexpr unsigned kBlock = 256;  // threads

// Returns the item of this thread. A kernel returns at once if the item is not below its number of items.
__device__ inline std::int64_t item() { return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

// Calls act(thread) in every thread of the block, for kernels whose threads work together. In the stand-in of the
// toolkit, which runs threads in sequence, the first thread does the work of all threads.
template <class Act>
__device__ inline void for_own_threads(Act act) {
#ifdef __CUDACC__
    act(threadIdx.x);
#else
    for (unsigned thread = 0; threadIdx.x == 0 && thread < blockDim.x; ++thread)
        act(thread);
#endif
}

// Adds up kBlock values, one per thread of the block: afterwards the first `left` entries are the sums of every
// `left`-th value, each for the thread with the number of its entry. `left` is a power of two. The order is always
// the same.
__device__ inline void sum_threads(double* values, unsigned left) {
    for (unsigned half = kBlock / 2; half >= left; half /= 2) {
        __syncthreads();
        for_own_threads([&](unsigned thread) {
            if (thread < half)
                values[thread] += values[thread + half];
        });
    }
}

// Puts `kernel` for `items` items on the stream. Does nothing if there are none.
template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, std::int64_t items, void (*kernel)(Parameters...), Arguments... arguments) {
    if (items <= 0)
        return;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>((items + kBlock - 1) / kBlock));
    config.blockDim = dim3(kBlock);
    config.stream = stream;
    check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "cudaLaunchKernelEx");
}

}  // namespace pw::cuda
