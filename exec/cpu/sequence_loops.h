// Loops over the rows of a sequence. A row may start anywhere: its floats need no alignment, and no float after its
// end is accessed. The loops take sixteen floats at a time in a fixed order, for any number of threads.
#pragma once

#include <cstdint>

namespace pw::cpu {

void add_rows(const float* left, const float* right, float* sum, std::int64_t count);  // sum may be an operand

// The rows of a layer norm or an RMS norm. `state` has mean and 1 / deviation per row, written by the first function,
// read by the later functions. The RMS norm is not centred: it takes 0 for the mean, which is not in the state, and has
// no shift.
struct NormRows {
    const float* x;
    float* state;
    std::int64_t rows, width;
    bool centred;
    float mean(std::int64_t row) const { return centred ? state[2 * row] : 0; }
    float& inverse(std::int64_t row) const { return state[centred ? 2 * row + 1 : row]; }
};
void normalise_rows(const NormRows& in, const float* scale, const float* shift, float* y);
void norm_rows_gradient(const NormRows& in, const float* scale, const float* dy, float* dx);
// Computes sums over the rows for `count` columns from `first` on, at most sixteen.
void norm_weight_gradient(const NormRows& in, const float* dy, std::int64_t first, std::int64_t count, double* scale,
                          double* shift);

// Compute the exact GELU, x times the cumulative normal distribution at x, for groups of sixteen values, padding
// included.
void gelu(const float* x, float* y, std::int64_t groups);
void gelu_gradient(const float* x, const float* dy, float* dx, std::int64_t groups);

// Compute the SiLU of the gate, gate / (1 + e^-gate), times `up`, for such groups. `dgate` and `dup` may be null.
void gated_silu(const float* gate, const float* up, float* y, std::int64_t groups);
void gated_silu_gradient(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                         std::int64_t groups);

// The cosine and sine by which a row's value i of every head, and the one half a head further, are turned: for every i
// below half a head.
struct Turn {
    const float *cosines, *sines;
    float direction;  // 1, or -1 for the opposite angle
    std::int64_t half;
};
void turn_heads(const float* x, const Turn& turn, float* y, std::int64_t heads);

// Computes the softmax of the first `seen` scores of a row. The remaining scores of `count` become 0.
void causal_softmax(float* scores, std::int64_t seen, std::int64_t count);
// Computes slopes = factor * probability * (slope - the mean of the slopes under the probabilities).
void softmax_gradient(const float* probabilities, float* slopes, std::int64_t count, float factor);

}  // namespace pw::cpu
