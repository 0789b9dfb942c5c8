// Arithmetic on times and sizes that stops at kBeyond where integers would overflow. Values near it are refused where
// their position in a file is known: schedules/memory/limits.h, check_layer_costs().
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace pw {

inline constexpr std::int64_t kBeyond = std::int64_t{1} << 62;

// Returns the nearest integer, and of two the larger one: also for a half of which sums in another order lost a little.
inline std::int64_t nearest_integer(double value) { return std::llround(value + 1e-6); }

// Returns the nearest integer of [0, kBeyond], for NaN kBeyond.
inline std::int64_t bounded(double value) {
    if (!(value < static_cast<double>(kBeyond)))
        return kBeyond;
    return std::max<std::int64_t>(0, nearest_integer(value));
}

// The sum and the product are of numbers of [0, kBeyond].
inline std::int64_t bounded_sum(std::int64_t a, std::int64_t b) { return a > kBeyond - b ? kBeyond : a + b; }

inline std::int64_t bounded_product(std::int64_t a, std::int64_t b) {
    return a != 0 && b > kBeyond / a ? kBeyond : a * b;
}

}  // namespace pw
