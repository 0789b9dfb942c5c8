// Host stand-in: the C++ part of the CUDA runtime, with kernels. See tests/cuda/host_cuda/host_cuda.h.
#pragma once

#include "tests/cuda/host_cuda/host_cuda.h"

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

inline void __syncthreads() {}

inline thread_local constinit uint3 threadIdx{}, blockIdx{};
inline thread_local constinit dim3 blockDim{}, gridDim{};

inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }

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

// The pointers among a kernel's arguments, and the words of structs that may be pointers.
struct Pointers {
    std::vector<Argument> own;
    std::vector<const void*> inside;
};

// Calls `thread` on the stream for every thread of the grid, one after the other. The device must be able to reach
// the pointers, and words of structs that point to memory of devices.
cudaError_t launch(const cudaLaunchConfig_t& config, const Pointers& pointers, std::function<void()> thread);

template <class T>
void add_pointers(const T& argument, Pointers& to) {
    if constexpr (std::is_pointer_v<T>)
        to.own.push_back({argument, !std::is_const_v<std::remove_pointer_t<T>>});
    else if constexpr (std::is_class_v<T> && sizeof(T) % sizeof(void*) == 0) {
        const void* words[sizeof(T) / sizeof(void*)];
        std::memcpy(words, &argument, sizeof words);
        for (const void* word : words)
            to.inside.push_back(word);
    }
}

}  // namespace host_cuda

template <typename... ExpTypes, typename... ActTypes>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(ExpTypes...), ActTypes&&... args) {
    return [&](ExpTypes... coerced) {
        host_cuda::Pointers pointers;
        (host_cuda::add_pointers(coerced, pointers), ...);
        return host_cuda::launch(*config, pointers, [=] { kernel(coerced...); });
    }(std::forward<ActTypes>(args)...);
}
