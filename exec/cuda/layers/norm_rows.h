// What the kernels of a batch norm share with those of the add that it is run with. A row is a pixel of a sample.
#pragma once

#include "exec/cuda/layers/layers.h"

#include <algorithm>
#include <cstdint>

namespace pw::cuda {

// A thread takes one pack of channels in the rows share, share + shares, ...: neighbouring threads read
// neighbouring packs.
struct Rows {
    unsigned packs, shares, rows;
    __device__ unsigned threads() const { return packs * shares; }
};

// The state has planes of one float per channel. kScale is the parameter over the deviation.
enum StatePlane { kMean, kInverse, kScale, kShift, kStatePlanes };

// The result is rounded once: the ReLU's mask is made of it anew in every pass, and must come out the same.
__device__ inline float normal(float x, float mean, float scale, float shift) {
    return __fmaf_rn(x - mean, scale, shift);
}

// Gives each thread sixteen rows, so that its channels' values are read seldom; fewer where threads are few.
inline Rows writing_rows(std::int64_t packs, std::int64_t rows) {
    const std::int64_t enough = std::min((rows + 3) / 4, (std::int64_t{1} << 16) / packs);
    const std::int64_t shares = std::max({(rows + 15) / 16, enough});
    return {static_cast<unsigned>(packs), static_cast<unsigned>(shares), static_cast<unsigned>(rows)};
}

}  // namespace pw::cuda
