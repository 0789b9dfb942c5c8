// The common part of the kernels of a batch norm and of an add that runs together with it. A row is a pixel of a
// sample.
#pragma once

#include "exec/cuda/layers/layers.h"

#include <algorithm>
#include <cstdint>

namespace pw::cuda {

// A thread takes one pack of channels in the rows share, share + shares, ..., so that neighbouring threads read
// neighbouring packs.
struct Rows {
    unsigned packs, shares, rows;
    __device__ unsigned threads() const { return packs * shares; }
};

// The state has planes of one float per channel. kScale is the scale parameter divided by the deviation.
enum StatePlane { kMean, kInverse, kScale, kShift, kStatePlanes };

// The result is rounded once: every pass computes the ReLU's mask from it again, and must get the same mask.
__device__ inline float normal(float x, float mean, float scale, float shift) {
    return __fmaf_rn(x - mean, scale, shift);
}

// Gives each thread sixteen rows, so that the values of its channels are read rarely, but fewer rows if there would
// be few threads.
inline Rows writing_rows(std::int64_t packs, std::int64_t rows) {
    const std::int64_t enough = std::min((rows + 3) / 4, (std::int64_t{1} << 16) / packs);
    const std::int64_t shares = std::max({(rows + 15) / 16, enough});
    return {static_cast<unsigned>(packs), static_cast<unsigned>(shares), static_cast<unsigned>(rows)};
}

}  // namespace pw::cuda
