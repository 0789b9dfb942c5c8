// Blocks that stay for a while and note where and when they ran.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pw {

struct Visit {
    unsigned multiprocessor;
    std::uint64_t start, end;  // of the GPU's clock, nanoseconds
};

inline constexpr unsigned kSpinThreads = 1024;  // two blocks fit on a multiprocessor

// Writes visits[block]; every block stays for about `nanoseconds`.
void spin(cudaStream_t stream, unsigned blocks, std::uint64_t nanoseconds, Visit* visits);

}  // namespace pw
