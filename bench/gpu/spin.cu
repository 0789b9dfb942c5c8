#include "bench/gpu/spin.h"

#include "exec/cuda/device/check.h"

namespace pw {

namespace {

__device__ std::uint64_t gpu_time() {
    unsigned long long time = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

__global__ void stay(std::uint64_t nanoseconds, Visit* visits) {
    constexpr long long kMostCycles = 200'000'000;  // 0.1 s, in case the clock stops
    if (threadIdx.x == 0) {
        Visit visit{};
        asm volatile("mov.u32 %0, %%smid;" : "=r"(visit.multiprocessor));
        const long long first = clock64();
        visit.start = visit.end = gpu_time();
        while (visit.end - visit.start < nanoseconds && clock64() - first < kMostCycles)
            visit.end = gpu_time();
        visits[blockIdx.x] = visit;
    }
    __syncthreads();  // the block stays whole
}

}  // namespace

void spin(cudaStream_t stream, unsigned blocks, std::uint64_t nanoseconds, Visit* visits) {
    stay<<<blocks, kSpinThreads, 0, stream>>>(nanoseconds, visits);
    cuda::check(cudaGetLastError(), "spin");
}

}  // namespace pw
