// Sixteen floats at a time, in whatever instructions the machine has: hot loops are compiled once
// per instruction set and chosen when the program loads. The lanes fix the order of every sum, so
// that the number of threads does not change a bit.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define PW_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define PW_CLONES
#endif

namespace pw::cpu {

constexpr std::int64_t kLanes = 16;  // also the channels of one block of nChw16c

using Lanes = float __attribute__((vector_size(64), may_alias));

inline std::int64_t groups_of(std::int64_t elements) { return (elements + kLanes - 1) / kLanes; }

}  // namespace pw::cpu
