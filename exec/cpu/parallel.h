// A fixed division of work among the threads of the calling device.
#pragma once

#include <omp.h>

#include <cstdint>

namespace pw::cpu {

// Calls work(first, count) for one contiguous share per thread.
template <class Work>
void in_shares(std::int64_t all, Work work) {
    const int threads = omp_get_max_threads();
    if (threads == 1)
        return work(std::int64_t{0}, all);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int t = 0; t < threads; ++t) {
        const std::int64_t first = all * t / threads, last = all * (t + 1) / threads;
        work(first, last - first);
    }
}

}  // namespace pw::cpu
