// The inner loops of convolutions and matrix products, on private copies. The thread sanitizer skips them: with it
// they would take ten times as long.
#pragma once

#include <cstddef>

namespace host_cuda {

__attribute__((no_sanitize("thread"))) inline double dot(const double* a, const double* b, std::size_t count) {
    double sums[4] = {};  // four at a time, for vector instructions
    std::size_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (std::size_t k = 0; k < 4; ++k)
            sums[k] += a[i + k] * b[i + k];
    for (; i < count; ++i)
        sums[0] += a[i] * b[i];
    return sums[0] + sums[1] + (sums[2] + sums[3]);
}

__attribute__((no_sanitize("thread"))) inline void add_multiple(double* to, double by, const double* from,
                                                                std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
        to[i] += by * from[i];
}

}  // namespace host_cuda
