// What rounding does to doubles.
#pragma once

namespace pw {

// The relative difference that sums and products of the same numbers in different orders may have. A number is rounded
// up, or compared, after this share is taken off: digits beyond the last digit of a double must not decide.
inline constexpr double kRounding = 1e-12;

}  // namespace pw
