// The inner loops of convolutions and matrix products, on private copies: nothing in them is for the thread sanitizer,
// under which they would take ten times as long.
#pragma once

#include <cstddef>

namespace host_cuda {

[[gnu::no_sanitize("thread")]] inline double dot(const double* a, const double* b, std::size_t count) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i)
        sum += a[i] * b[i];
    return sum;
}

[[gnu::no_sanitize("thread")]] inline void add_multiple(double* to, double by, const double* from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
        to[i] += by * from[i];
}

}  // namespace host_cuda
