#include "exec/cpu/lanes.h"
#include "exec/cpu/loops.h"

#include <algorithm>

namespace pw::cpu {

namespace {

constexpr std::int64_t kChunk = 128;  // pixels: at most 8 KiB, so that the second read is from the first cache

// Calls visit(offset, pixels) for every chunk of the block, in order.
template <class Visit>
[[gnu::always_inline]] inline void for_chunks(const Block& block, Visit visit) {
    for (std::int64_t n = 0; n < block.samples; ++n)
        for (std::int64_t first = 0; first < block.pixels; first += kChunk)
            visit(n * block.stride + first * block.channels, std::min(kChunk, block.pixels - first));
}

// Computes the moments of a union from the moments of its parts (Chan, Golub and LeVeque).
template <class Width>
[[gnu::always_inline]] inline void merge_moments(double before, double added, const typename Width::Pixel& chunk_mean,
                                                 const typename Width::Pixel& chunk_squares, double* mean,
                                                 double* squares) {
    const double all = before + added;
    const double share = added / all, cross = before * share;
    for (int l = 0; l < Width::channels; ++l) {
        const double delta = static_cast<double>(chunk_mean[l]) - mean[l];
        mean[l] += delta * share;
        squares[l] += static_cast<double>(chunk_squares[l]) + delta * delta * cross;
    }
}

template <class Width>
[[gnu::always_inline]] inline void moments(const float* x, const Block& block, double* mean, double* variance) {
    using Pixel = typename Width::Pixel;
    double* squares = variance;
    std::fill_n(mean, Width::channels, 0.0);
    std::fill_n(squares, Width::channels, 0.0);
    double seen = 0;
    for_chunks(
        block, [&](std::int64_t offset, std::int64_t pixels) __attribute__((always_inline)) {
            const Pixel* p = pixels_at<Width>(x + offset);
            Pixel sum[4] = {};
            std::int64_t i = 0;
            for (; i + 4 <= pixels; i += 4)
                for (int k = 0; k < 4; ++k) {
                    prefetch(p + i + k);
                    sum[k] += p[i + k];
                }
            for (; i < pixels; ++i)
                sum[0] += p[i];
            const Pixel chunk_mean = ((sum[0] + sum[1]) + (sum[2] + sum[3])) / static_cast<float>(pixels);
            Pixel square[4] = {};
            for (i = 0; i + 4 <= pixels; i += 4)
                for (int k = 0; k < 4; ++k) {
                    const Pixel d = p[i + k] - chunk_mean;
                    square[k] += d * d;
                }
            for (; i < pixels; ++i) {
                const Pixel d = p[i] - chunk_mean;
                square[0] += d * d;
            }
            const Pixel chunk_squares = (square[0] + square[1]) + (square[2] + square[3]);
            merge_moments<Width>(seen, static_cast<double>(pixels), chunk_mean, chunk_squares, mean, squares);
            seen += static_cast<double>(pixels);
        });
    for (int l = 0; l < Width::channels; ++l)
        variance[l] = squares[l] / seen;
}

template <class Width>
[[gnu::always_inline]] inline void normalise(const float* x, float* y, const Block& block, const NormState& state,
                                             bool relu) {
    using Pixel = typename Width::Pixel;
    const Pixel mean = *pixels_at<Width>(state.mean), scale = *pixels_at<Width>(state.scale),
                shift = *pixels_at<Width>(state.shift), zero = {};
    const bool streamed = block.samples * block.stride > kStreamedFloats;
    for (std::int64_t n = 0; n < block.samples; ++n) {
        const Pixel* from = pixels_at<Width>(x + n * block.stride);
        Pixel* to = pixels_at<Width>(y + n * block.stride);
        if (relu) {
            for (std::int64_t i = 0; i < block.pixels; ++i) {
                prefetch(from + i);
                const Pixel value = (from[i] - mean) * scale + shift;
                write(value <= zero ? zero : value, to + i, streamed);
            }
        } else {
            for (std::int64_t i = 0; i < block.pixels; ++i) {
                prefetch(from + i);
                write((from[i] - mean) * scale + shift, to + i, streamed);
            }
        }
    }
    finish_writes();
}

template <class Width>
[[gnu::always_inline]] inline void gradient_sums(const float* x, const float* dy, const Block& block,
                                                 const NormState& state, bool relu, double* shift_sum,
                                                 double* scale_sum) {
    using Pixel = typename Width::Pixel;
    const Pixel mean = *pixels_at<Width>(state.mean), scale = *pixels_at<Width>(state.scale),
                shift = *pixels_at<Width>(state.shift), zero = {};
    std::fill_n(shift_sum, Width::channels, 0.0);
    std::fill_n(scale_sum, Width::channels, 0.0);
    for_chunks(
        block, [&](std::int64_t offset, std::int64_t pixels) __attribute__((always_inline)) {
            const Pixel* p = pixels_at<Width>(x + offset);
            const Pixel* g = pixels_at<Width>(dy + offset);
            Pixel plain[2] = {}, scaled[2] = {};
            const auto add_pixel = [&](std::int64_t i, int k) __attribute__((always_inline)) {
                prefetch(p + i);
                prefetch(g + i);
                const Pixel centred = p[i] - mean;
                Pixel gradient = g[i];
                if (relu)
                    gradient = centred * scale + shift <= zero ? zero : gradient;
                plain[k] += gradient;
                scaled[k] += gradient * centred;
            };
            std::int64_t i = 0;
            for (; i + 2 <= pixels; i += 2)
                for (int k = 0; k < 2; ++k)
                    add_pixel(i + k, k);
            if (i < pixels)
                add_pixel(i, 0);
            const Pixel plain_sum = plain[0] + plain[1], scaled_sum = scaled[0] + scaled[1];
            for (int l = 0; l < Width::channels; ++l) {
                shift_sum[l] += static_cast<double>(plain_sum[l]);
                scale_sum[l] += static_cast<double>(scaled_sum[l]);
            }
        });
}

template <class Width>
[[gnu::always_inline]] inline void input_gradient(const float* x, const float* dy, float* dx, const Block& block,
                                                  const NormState& state, bool relu, const float* factor,
                                                  const float* mean_dy, const float* slope) {
    using Pixel = typename Width::Pixel;
    const Pixel mean = *pixels_at<Width>(state.mean), scale = *pixels_at<Width>(state.scale),
                shift = *pixels_at<Width>(state.shift), zero = {};
    const Pixel f = *pixels_at<Width>(factor), m = *pixels_at<Width>(mean_dy), s = *pixels_at<Width>(slope);
    const bool streamed = block.samples * block.stride > kStreamedFloats;
    for (std::int64_t n = 0; n < block.samples; ++n) {
        const Pixel* p = pixels_at<Width>(x + n * block.stride);
        const Pixel* g = pixels_at<Width>(dy + n * block.stride);
        Pixel* to = pixels_at<Width>(dx + n * block.stride);
        for (std::int64_t i = 0; i < block.pixels; ++i) {
            prefetch(p + i);
            prefetch(g + i);
            const Pixel centred = p[i] - mean;
            Pixel gradient = g[i];
            if (relu)
                gradient = centred * scale + shift <= zero ? zero : gradient;
            write(f * (gradient - m - centred * s), to + i, streamed);
        }
    }
    finish_writes();
}

}  // namespace

PW_CLONES void block_moments(const float* x, const Block& block, double* mean, double* variance) {
    block.channels == Wide::channels ? moments<Wide>(x, block, mean, variance)
                                     : moments<Narrow>(x, block, mean, variance);
}

PW_CLONES void normalise_block(const float* x, float* y, const Block& block, const NormState& state, bool relu) {
    block.channels == Wide::channels ? normalise<Wide>(x, y, block, state, relu)
                                     : normalise<Narrow>(x, y, block, state, relu);
}

PW_CLONES void norm_gradient_sums(const float* x, const float* dy, const Block& block, const NormState& state,
                                  bool relu, double* shift_sum, double* scale_sum) {
    block.channels == Wide::channels ? gradient_sums<Wide>(x, dy, block, state, relu, shift_sum, scale_sum)
                                     : gradient_sums<Narrow>(x, dy, block, state, relu, shift_sum, scale_sum);
}

PW_CLONES void norm_input_gradient(const float* x, const float* dy, float* dx, const Block& block,
                                   const NormState& state, bool relu, const float* factor, const float* mean_dy,
                                   const float* slope) {
    block.channels == Wide::channels ? input_gradient<Wide>(x, dy, dx, block, state, relu, factor, mean_dy, slope)
                                     : input_gradient<Narrow>(x, dy, dx, block, state, relu, factor, mean_dy, slope);
}

}  // namespace pw::cpu
