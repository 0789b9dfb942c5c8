// Host stand-in: bfloat16 storage and its two conversions. The real type also converts implicitly; this one does not.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>

struct __nv_bfloat16_raw {
    unsigned short x;
};

struct alignas(2) __nv_bfloat16 {
    __nv_bfloat16() = default;
    constexpr __nv_bfloat16(const __nv_bfloat16_raw& raw) : __x(raw.x) {}
    constexpr operator __nv_bfloat16_raw() const { return {__x}; }

protected:
    unsigned short __x;
};

inline float __bfloat162float(const __nv_bfloat16 a) {
    return std::bit_cast<float>(std::uint32_t{std::bit_cast<std::uint16_t>(a)} << 16);
}

// Rounds to the nearest, ties to even; every NaN becomes the same one.
inline __nv_bfloat16 __float2bfloat16_rn(const float a) {
    const auto bits = std::bit_cast<std::uint32_t>(a);
    if (a != a)
        return __nv_bfloat16_raw{0x7fff};
    return __nv_bfloat16_raw{static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
