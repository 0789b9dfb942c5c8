// Loops that oneDNN does not have, or that are slower there: batch norm, add with ReLU, sums, dropout, the
// optimizer. Pointers are aligned to 64 bytes. Pointers to a block of channels are aligned to its width. A group is
// sixteen floats. Buffers are padded to whole groups.
#pragma once

#include "exec/kernels.h"
#include "workloads/random.h"

#include <cstdint>

namespace pw::cpu {

// A block of channels of an nChw8c or nChw16c tensor.
struct Block {
    std::int64_t samples;
    std::int64_t stride;  // floats from a sample to the next sample
    std::int64_t pixels;
    std::int64_t channels;  // 8 or 16
};
constexpr std::int64_t kMostChannels = 16;

// Each array has a value per channel, kept from the forward pass. With a fused ReLU the backward pass determines
// which values passed, NaN included, by computing (x - mean) * scale + shift <= 0 again, in the same arithmetic.
struct NormState {
    float *mean, *inverse, *scale, *shift;
};

// Computes mean and biased variance in one pass through memory. They are exact up to rounding for any mean.
void block_moments(const float* x, const Block& block, double* mean, double* variance);
void normalise_block(const float* x, float* y, const Block& block, const NormState& state, bool relu);
// Computes the sums of dy and of dy * (x - mean) over the block, where dy is masked by the fused ReLU.
void norm_gradient_sums(const float* x, const float* dy, const Block& block, const NormState& state, bool relu,
                        double* shift_sum, double* scale_sum);
// Computes dx = factor * (dy - mean_dy - (x - mean) * slope), where dy is masked by the fused ReLU.
void norm_input_gradient(const float* x, const float* dy, float* dx, const Block& block, const NormState& state,
                         bool relu, const float* factor, const float* mean_dy, const float* slope);

// Bit k of word l of a mask's sixteen words is 1 if vector element l of group k passed. `mask` may be null.
constexpr std::int64_t kMaskGroups = 32;
void add_relu(const float* left, const float* right, float* y, std::uint32_t* mask, std::int64_t groups, bool streamed);
void add(const float* left, const float* right, float* y, std::int64_t groups);
// Copies the values that passed to one or both addresses. Either may be null.
void masked_copies(const float* dy, const std::uint32_t* mask, float* first, float* second, std::int64_t groups,
                   bool streamed);
bool any_nan(const float* x, std::int64_t groups);
void relu(const float* x, float* y, std::int64_t groups);
void relu_gradient(const float* x, const float* dy, float* dx, std::int64_t groups);
void copies(const float* dy, float* first, float* second, std::int64_t groups);

// Compute the means of blocks of 8 or 16 channels of a sample, and the gradients of the blocks from the gradients of
// the means.
void average_blocks(const float* x, float* y, std::int64_t pixels, std::int64_t blocks, std::int64_t channels);
void spread_blocks(const float* dy, float* dx, std::int64_t pixels, std::int64_t blocks, std::int64_t channels);

// repeat_pixels() makes `times` rows from each of `rows` rows of pixels, each `times` times as wide. sum_pixels()
// is its gradient. Pixels are blocks of 8 or 16 channels, or single values.
void repeat_pixels(const float* x, float* y, std::int64_t rows, std::int64_t width, std::int64_t times,
                   std::int64_t channels);
void sum_pixels(const float* dy, float* dx, std::int64_t rows, std::int64_t width, std::int64_t times,
                std::int64_t channels);

// The parameters of dropout, which scales the values that pass and sets the remaining values to zero.
struct Drop {
    DropoutKey key;  // of the sample
    std::uint32_t threshold;
    float scale;
};
// drop_values() drops values in plain order, from value `first` of the sample on. drop_block() drops a block of 8
// or 16 channels whose first value is `first`. They write a byte per value to `mask`, which may be null.
void drop_values(const Drop& drop, const float* x, float* y, std::byte* mask, std::uint32_t first, std::int64_t count);
void drop_block(const Drop& drop, const float* x, float* y, std::byte* mask, std::uint32_t first, std::int64_t pixels,
                std::int64_t channels);
void scale_passed(const float* dy, const std::byte* mask, float* dx, float scale, std::int64_t count);

// Computes to += from.
void accumulate(const float* from, float* to, std::int64_t groups);
void momentum_update(const Sgd& sgd, const float* weights, const float* gradient, float* momentum, float* new_weights,
                     std::int64_t groups);
// `mean` and `square` are the running averages of the gradient and of its square.
void adamw_update(const AdamW& adamw, const float* weights, const float* gradient, float* mean, float* square,
                  float* new_weights, std::int64_t groups);
// Computes out = weights - factor * momentum.
void predict_weights(const float* weights, const float* momentum, float factor, float* out, std::int64_t groups);

}  // namespace pw::cpu
