// Host stand-in: the C++ part of the CUDA runtime, with kernels. See tests/host_cuda/host_cuda.h.
#pragma once

#include "tests/host_cuda/host_cuda.h"

#include <cuda_runtime_api.h>

#include <functional>
#include <initializer_list>
#include <type_traits>
#include <utility>

inline void __syncthreads() {}

inline thread_local constinit uint3 threadIdx{}, blockIdx{};
inline thread_local constinit dim3 blockDim{}, gridDim{};

inline uint2 make_uint2(unsigned int x, unsigned int y) { return {x, y}; }
inline uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z, unsigned int w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <class T>
cudaError_t cudaMalloc(T** devPtr, size_t size) {
    return ::cudaMalloc(reinterpret_cast<void**>(devPtr), size);
}

template <class T>
cudaError_t cudaHostAlloc(T** ptr, size_t size, unsigned int flags) {
    return ::cudaHostAlloc(reinterpret_cast<void**>(ptr), size, flags);
}

namespace host_cuda {

// Calls `thread` on the stream for every thread of the grid, one after the other. The device must reach the arguments.
cudaError_t launch(const cudaLaunchConfig_t& config, std::initializer_list<Argument> arguments,
                   std::function<void()> thread);

template <class T>
Argument memory_in(const T& argument) {
    if constexpr (std::is_pointer_v<T>)
        return {argument, !std::is_const_v<std::remove_pointer_t<T>>};
    else
        return {};
}

}  // namespace host_cuda

template <typename... ExpTypes, typename... ActTypes>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(ExpTypes...), ActTypes&&... args) {
    return [&](ExpTypes... coerced) {
        return host_cuda::launch(*config, {host_cuda::memory_in(coerced)...}, [=] { kernel(coerced...); });
    }(std::forward<ActTypes>(args)...);
}
