// How own kernels are started, and how they find their work: one thread per item, items beyond the
// last are for nobody.
#pragma once

#include "exec/cuda/check.h"

#include <cuda_runtime.h>

#include <cstdint>

namespace pw::cuda {

inline constexpr unsigned kBlock = 256;  // threads

// Item of this thread; a kernel returns at once when it is not below its number of items.
__device__ inline std::int64_t item() {
    return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// Puts `kernel` for `items` items on the stream. Nothing is started for none.
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
