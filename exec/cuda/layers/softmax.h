// Softmax over rows, each divided among a few threads. The results of the threads are combined in a fixed order.
#pragma once

#include "exec/cuda/layers/packs.h"

#include <cmath>

namespace pw::cuda {

// Returns the threads per row of `length` values. The number depends on the shape only, so that the order of sums
// is fixed.
constexpr unsigned parts_of_row(std::int64_t length) {
    unsigned parts = 1;
    while (parts < 32 && parts * 16 <= length)
        parts *= 2;
    return parts;
}

// The largest of some logits, and the sum of exp(logit - largest): minus infinity and zero if there are none.
struct Powers {
    float largest, sum;
};

// Returns the powers of row[first], row[first + step], ... below `end`.
template <class T>
__device__ Powers powers_of(const T* row, unsigned first, unsigned step, unsigned end) {
    Powers powers = {-INFINITY, 0};
    for_places<8>(
        first, step, end, [&](unsigned place) { return row[place]; },
        [&](unsigned, T read) {
            const float logit = real(read);
            if (logit > powers.largest) {
                powers.sum = powers.sum * expf(powers.largest - logit) + 1;
                powers.largest = logit;
            } else {
                powers.sum += expf(logit - powers.largest);
            }
        });
    return powers;
}

struct RowPowers {
    float largest;
    double sum;
};

// Joins the `parts` of a row, at least one of which has logits.
__device__ inline RowPowers joined(const Powers* parts, unsigned count) {
    float largest = parts[0].largest;
    for (unsigned part = 1; part < count; ++part)
        largest = parts[part].largest > largest ? parts[part].largest : largest;
    double sum = 0;
    for (unsigned part = 0; part < count; ++part)
        sum += static_cast<double>(parts[part].sum * expf(parts[part].largest - largest));
    return {largest, sum};
}

__device__ inline float probability(float logit, Powers row) { return expf(logit - row.largest) / row.sum; }

}  // namespace pw::cuda
