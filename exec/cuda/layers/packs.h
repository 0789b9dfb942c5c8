// Values that are read and written together: 16 bytes if the shape allows it.
#pragma once

#include "exec/cuda/layers/launch.h"

#include <cuda_bf16.h>

#include <cstddef>

namespace pw::cuda {

// `T` is float, __nv_bfloat16 or unsigned char. Copy a pack as a whole: reading its members in place compiles to
// narrow reads.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth < 16 ? sizeof(T) * kWidth : 16) Pack {
    T values[kWidth];
};

template <class T>
inline constexpr int kWidest = static_cast<int>(16 / sizeof(T));

template <class T, int kWidth>
Pack<T, kWidth>* packs(std::byte* data) {
    return reinterpret_cast<Pack<T, kWidth>*>(data);
}
template <class T, int kWidth>
const Pack<T, kWidth>* packs(const std::byte* data) {
    return reinterpret_cast<const Pack<T, kWidth>*>(data);
}

__device__ inline float real(float value) { return value; }
__device__ inline float real(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T>
__device__ T rounded(float value);
template <>
__device__ inline float rounded<float>(float value) {
    return value;
}
template <>
__device__ inline __nv_bfloat16 rounded<__nv_bfloat16>(float value) {
    return __float2bfloat16_rn(value);
}

template <class T, int kWidth>
__device__ inline Pack<float, kWidth> reals(Pack<T, kWidth> from) {
    Pack<float, kWidth> all;
    for (int k = 0; k < kWidth; ++k)
        all.values[k] = real(from.values[k]);
    return all;
}

template <class T, int kWidth>
__device__ inline Pack<T, kWidth> rounded(Pack<float, kWidth> from) {
    Pack<T, kWidth> all;
    for (int k = 0; k < kWidth; ++k)
        all.values[k] = rounded<T>(from.values[k]);
    return all;
}

// Calls use(position, read(position)) for first, first + step, ... below `end`. It reads kAhead positions before it
// uses the first of them, so that the memory stays busy.
template <int kAhead, class Read, class Use>
__device__ inline void for_places(unsigned first, unsigned step, unsigned end, Read read, Use use) {
    unsigned place = first;
    for (; place + (kAhead - 1) * step < end; place += kAhead * step) {
        decltype(read(place)) ahead[kAhead];
        for (int k = 0; k < kAhead; ++k)
            ahead[k] = read(place + k * step);
        for (int k = 0; k < kAhead; ++k)
            use(place + k * step, ahead[k]);
    }
    for (; place < end; place += step)
        use(place, read(place));
}

}  // namespace pw::cuda
