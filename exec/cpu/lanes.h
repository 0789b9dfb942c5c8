// Vectors of sixteen floats, or of eight for a narrow block, with the best instructions of the machine: hot loops
// are compiled once per instruction set and chosen when the program loads. The vector elements fix the order of
// every sum, so that the number of threads does not change a bit.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define PW_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define PW_CLONES
#endif

namespace pw::cpu {

constexpr std::int64_t kLanes = 16;

using Lanes = float __attribute__((vector_size(64), may_alias));
using HalfLanes = float __attribute__((vector_size(32), may_alias));

inline const Lanes& lanes(const float* data) { return *reinterpret_cast<const Lanes*>(data); }
inline Lanes& lanes(float* data) { return *reinterpret_cast<Lanes*>(data); }

// A loop over the pixels of a block is compiled for two widths: blocks of 16 channels and of 8.
struct Wide {
    using Pixel = Lanes;
    static constexpr std::int64_t channels = 16;
};
struct Narrow {
    using Pixel = HalfLanes;
    static constexpr std::int64_t channels = 8;
};

template <class Width>
[[gnu::always_inline]] inline const typename Width::Pixel* pixels_at(const float* data) {
    return reinterpret_cast<const typename Width::Pixel*>(data);
}
template <class Width>
[[gnu::always_inline]] inline typename Width::Pixel* pixels_at(float* data) {
    return reinterpret_cast<typename Width::Pixel*>(data);
}

// Prefetches a kilobyte ahead, since the hardware prefetch stops at every page.
[[gnu::always_inline]] inline void prefetch(const void* data) {
    __builtin_prefetch(static_cast<const std::byte*>(data) + 1024);
}

// Tensors of more floats than this bypass the caches when they are written: their readers get them from memory in
// any case, and a third of the traffic is saved if a cache line is not read before it is written.
constexpr std::int64_t kStreamedFloats = std::int64_t{1} << 18;

[[gnu::always_inline]] inline void write(const Lanes& value, Lanes* to, [[maybe_unused]] bool streamed) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    if (streamed) {
        auto* data = reinterpret_cast<float*>(to);
        _mm_stream_ps(data, __builtin_shufflevector(value, value, 0, 1, 2, 3));
        _mm_stream_ps(data + 4, __builtin_shufflevector(value, value, 4, 5, 6, 7));
        _mm_stream_ps(data + 8, __builtin_shufflevector(value, value, 8, 9, 10, 11));
        _mm_stream_ps(data + 12, __builtin_shufflevector(value, value, 12, 13, 14, 15));
        return;
    }
#endif
    *to = value;
}

[[gnu::always_inline]] inline void write(const HalfLanes& value, HalfLanes* to, [[maybe_unused]] bool streamed) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    if (streamed) {
        auto* data = reinterpret_cast<float*>(to);
        _mm_stream_ps(data, __builtin_shufflevector(value, value, 0, 1, 2, 3));
        _mm_stream_ps(data + 4, __builtin_shufflevector(value, value, 4, 5, 6, 7));
        return;
    }
#endif
    *to = value;
}

// Called before another thread may read streamed values.
inline void finish_writes() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

inline std::int64_t groups_of(std::int64_t elements) { return (elements + kLanes - 1) / kLanes; }

}  // namespace pw::cpu
