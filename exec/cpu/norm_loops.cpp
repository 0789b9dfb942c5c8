#include "exec/cpu/lanes.h"
#include "exec/cpu/loops.h"

#include <algorithm>

namespace pw::cpu {

namespace {

constexpr std::int64_t kChunk = 128;  // pixels: 8 KiB, so that the second look hits the first cache

// Calls visit(offset, pixels) for every chunk of the block, in order.
template <class Visit>
[[gnu::always_inline]] inline void for_chunks(const Block& block, Visit visit) {
    for (std::int64_t n = 0; n < block.samples; ++n)
        for (std::int64_t first = 0; first < block.pixels; first += kChunk)
            visit(n * block.stride + first * kLanes, std::min(kChunk, block.pixels - first));
}

// Chan, Golub and LeVeque: moments of a union from those of its parts.
[[gnu::always_inline]] inline void merge_moments(double before, double added, const Lanes& chunk_mean,
                                                 const Lanes& chunk_squares, double* mean, double* squares) {
    const double all = before + added;
    const double share = added / all, cross = before * share;
    for (int l = 0; l < 16; ++l) {
        const double delta = static_cast<double>(chunk_mean[l]) - mean[l];
        mean[l] += delta * share;
        squares[l] += static_cast<double>(chunk_squares[l]) + delta * delta * cross;
    }
}

}  // namespace

PW_CLONES void block_moments(const float* x, const Block& block, double* mean, double* variance) {
    double* squares = variance;
    std::fill_n(mean, 16, 0.0);
    std::fill_n(squares, 16, 0.0);
    double seen = 0;
    for_chunks(block, [&] [[gnu::always_inline]] (std::int64_t offset, std::int64_t pixels) {
        const float* p = x + offset;
        Lanes sum[4] = {};
        std::int64_t i = 0;
        for (; i + 4 <= pixels; i += 4)
            for (int k = 0; k < 4; ++k) {
                prefetch(p + (i + k) * kLanes);
                sum[k] += lanes(p + (i + k) * kLanes);
            }
        for (; i < pixels; ++i)
            sum[0] += lanes(p + i * kLanes);
        const Lanes chunk_mean = ((sum[0] + sum[1]) + (sum[2] + sum[3])) / static_cast<float>(pixels);
        Lanes square[4] = {};
        for (i = 0; i + 4 <= pixels; i += 4)
            for (int k = 0; k < 4; ++k) {
                const Lanes d = lanes(p + (i + k) * kLanes) - chunk_mean;
                square[k] += d * d;
            }
        for (; i < pixels; ++i) {
            const Lanes d = lanes(p + i * kLanes) - chunk_mean;
            square[0] += d * d;
        }
        const Lanes chunk_squares = (square[0] + square[1]) + (square[2] + square[3]);
        merge_moments(seen, static_cast<double>(pixels), chunk_mean, chunk_squares, mean, squares);
        seen += static_cast<double>(pixels);
    });
    for (int l = 0; l < 16; ++l)
        variance[l] = squares[l] / seen;
}

PW_CLONES void normalise_block(const float* x, float* y, const Block& block, const NormState& state, bool relu) {
    const Lanes mean = lanes(state.mean), scale = lanes(state.scale), shift = lanes(state.shift), zero = {};
    const bool streamed = block.samples * block.stride > kStreamedFloats;
    for (std::int64_t n = 0; n < block.samples; ++n) {
        const float* from = x + n * block.stride;
        float* to = y + n * block.stride;
        if (relu) {
            for (std::int64_t i = 0; i < block.pixels; ++i) {
                prefetch(from + i * kLanes);
                const Lanes value = (lanes(from + i * kLanes) - mean) * scale + shift;
                write(value > zero ? value : zero, to + i * kLanes, streamed);
            }
        } else {
            for (std::int64_t i = 0; i < block.pixels; ++i) {
                prefetch(from + i * kLanes);
                write((lanes(from + i * kLanes) - mean) * scale + shift, to + i * kLanes, streamed);
            }
        }
    }
    finish_writes();
}

PW_CLONES void norm_gradient_sums(const float* x, const float* dy, const Block& block, const NormState& state,
                                  bool relu, double* shift_sum, double* scale_sum) {
    const Lanes mean = lanes(state.mean), scale = lanes(state.scale), shift = lanes(state.shift), zero = {};
    std::fill_n(shift_sum, 16, 0.0);
    std::fill_n(scale_sum, 16, 0.0);
    for_chunks(block, [&] [[gnu::always_inline]] (std::int64_t offset, std::int64_t pixels) {
        const float* p = x + offset;
        const float* g = dy + offset;
        Lanes plain[2] = {}, scaled[2] = {};
        const auto add_pixel = [&] [[gnu::always_inline]] (std::int64_t i, int k) {
            prefetch(p + i * kLanes);
            prefetch(g + i * kLanes);
            const Lanes centred = lanes(p + i * kLanes) - mean;
            Lanes gradient = lanes(g + i * kLanes);
            if (relu)
                gradient = centred * scale + shift > zero ? gradient : zero;
            plain[k] += gradient;
            scaled[k] += gradient * centred;
        };
        std::int64_t i = 0;
        for (; i + 2 <= pixels; i += 2)
            for (int k = 0; k < 2; ++k)
                add_pixel(i + k, k);
        if (i < pixels)
            add_pixel(i, 0);
        const Lanes plain_sum = plain[0] + plain[1], scaled_sum = scaled[0] + scaled[1];
        for (int l = 0; l < 16; ++l) {
            shift_sum[l] += static_cast<double>(plain_sum[l]);
            scale_sum[l] += static_cast<double>(scaled_sum[l]);
        }
    });
}

PW_CLONES void norm_input_gradient(const float* x, const float* dy, float* dx, const Block& block,
                                   const NormState& state, bool relu, const float* factor, const float* mean_dy,
                                   const float* slope) {
    const Lanes mean = lanes(state.mean), scale = lanes(state.scale), shift = lanes(state.shift), zero = {};
    const Lanes f = lanes(factor), m = lanes(mean_dy), s = lanes(slope);
    const bool streamed = block.samples * block.stride > kStreamedFloats;
    for (std::int64_t n = 0; n < block.samples; ++n) {
        const float* p = x + n * block.stride;
        const float* g = dy + n * block.stride;
        float* to = dx + n * block.stride;
        for (std::int64_t i = 0; i < block.pixels; ++i) {
            prefetch(p + i * kLanes);
            prefetch(g + i * kLanes);
            const Lanes centred = lanes(p + i * kLanes) - mean;
            Lanes gradient = lanes(g + i * kLanes);
            if (relu)
                gradient = centred * scale + shift > zero ? gradient : zero;
            write(f * (gradient - m - centred * s), to + i * kLanes, streamed);
        }
    }
    finish_writes();
}

}  // namespace pw::cpu
