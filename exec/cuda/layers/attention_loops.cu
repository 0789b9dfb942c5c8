#include "exec/cuda/layers/attention_loops.h"

#include "exec/cuda/layers/softmax.h"

namespace pw::cuda {

namespace {

using Bf16 = __nv_bfloat16;

__global__ void sum_parts(const float* __restrict__ scores, Powers* __restrict__ parts, unsigned length,
                          unsigned parts_per_row, unsigned items) {
    const auto thread = static_cast<unsigned>(item());
    if (thread >= items)
        return;
    const unsigned row = thread / parts_per_row;
    parts[thread] = powers_of(scores + row * length, thread - row * parts_per_row, parts_per_row, row % length + 1);
}

__global__ void join_parts(const Powers* __restrict__ parts, Powers* __restrict__ rows, unsigned parts_per_row,
                           unsigned items) {
    const auto row = static_cast<unsigned>(item());
    if (row >= items)
        return;
    const RowPowers powers = joined(parts + row * parts_per_row, parts_per_row);
    rows[row] = {powers.largest, static_cast<float>(powers.sum)};
}

template <class T>
__global__ void write_probabilities(const float* scores, const Powers* __restrict__ rows, T* probabilities,
                                    unsigned length, unsigned items) {
    const auto i = static_cast<unsigned>(item());
    if (i >= items)
        return;
    const unsigned row = i / length;
    const bool is_seen = i - row * length <= row % length;
    probabilities[i] = rounded<T>(is_seen ? probability(scores[i], rows[row]) : 0);
}

// Sums probability times gradient over parts of the rows.
template <class T>
__global__ void sum_products(const T* __restrict__ probabilities, const float* __restrict__ gradient,
                             float* __restrict__ parts, unsigned length, unsigned parts_per_row, unsigned items) {
    const auto thread = static_cast<unsigned>(item());
    if (thread >= items)
        return;
    const unsigned row = thread / parts_per_row;
    float sum = 0;
    for_places<8>(
        thread - row * parts_per_row, parts_per_row, row % length + 1,
        [&](unsigned column) {
            const unsigned place = row * length + column;
            return real(probabilities[place]) * gradient[place];
        },
        [&](unsigned, float product) { sum += product; });
    parts[thread] = sum;
}

__global__ void join_sums(const float* __restrict__ parts, float* __restrict__ rows, unsigned parts_per_row,
                          unsigned items) {
    const auto row = static_cast<unsigned>(item());
    if (row >= items)
        return;
    float sum = 0;
    for (unsigned part = 0; part < parts_per_row; ++part)
        sum += parts[row * parts_per_row + part];
    rows[row] = sum;
}

template <class T>
__global__ void write_gradient(const T* __restrict__ probabilities, const float* gradient,
                               const float* __restrict__ rows, T* score_gradient, unsigned length, unsigned items) {
    const auto i = static_cast<unsigned>(item());
    if (i >= items)
        return;
    const unsigned row = i / length;
    const bool is_seen = i - row * length <= row % length;
    score_gradient[i] = rounded<T>(is_seen ? real(probabilities[i]) * (gradient[i] - rows[row]) : 0);
}

__global__ void round_each(const float* __restrict__ from, Bf16* __restrict__ to, std::int64_t items) {
    const std::int64_t i = item();
    if (i < items)
        to[i] = rounded<Bf16>(from[i]);
}

// The scratch: a few parts per row, and the result of each row.
struct Shares {
    explicit Shares(const Squares& squares)
        : rows(squares.heads * squares.length),
          parts_per_row(parts_of_row(squares.length)),
          parts(rows * parts_per_row) {}
    unsigned rows, parts_per_row, parts;
};

}  // namespace

std::int64_t softmax_scratch(const Squares& squares) {
    const Shares shares(squares);
    return (std::int64_t{shares.parts} + shares.rows) * static_cast<std::int64_t>(sizeof(Powers));
}

template <class T>
void causal_softmax(cudaStream_t stream, const Squares& squares, const float* scores, T* probabilities,
                    std::byte* scratch) {
    const Shares shares(squares);
    auto* parts = reinterpret_cast<Powers*>(scratch);
    Powers* rows = parts + shares.parts;
    launch(stream, shares.parts, sum_parts, scores, parts, squares.length, shares.parts_per_row, shares.parts);
    launch(stream, shares.rows, join_parts, parts, rows, shares.parts_per_row, shares.rows);
    launch(stream, squares.elements(), write_probabilities<T>, scores, rows, probabilities, squares.length,
           squares.elements());
}
template void causal_softmax<float>(cudaStream_t, const Squares&, const float*, float*, std::byte*);
template void causal_softmax<Bf16>(cudaStream_t, const Squares&, const float*, Bf16*, std::byte*);

template <class T>
void causal_softmax_gradient(cudaStream_t stream, const Squares& squares, const T* probabilities, const float* gradient,
                             T* score_gradient, std::byte* scratch) {
    const Shares shares(squares);
    auto* parts = reinterpret_cast<float*>(scratch);
    float* rows = parts + shares.parts;
    launch(stream, shares.parts, sum_products<T>, probabilities, gradient, parts, squares.length, shares.parts_per_row,
           shares.parts);
    launch(stream, shares.rows, join_sums, parts, rows, shares.parts_per_row, shares.rows);
    launch(stream, squares.elements(), write_gradient<T>, probabilities, gradient, rows, score_gradient, squares.length,
           squares.elements());
}
template void causal_softmax_gradient<float>(cudaStream_t, const Squares&, const float*, const float*, float*,
                                             std::byte*);
template void causal_softmax_gradient<Bf16>(cudaStream_t, const Squares&, const Bf16*, const float*, Bf16*, std::byte*);

void round_values(cudaStream_t stream, const float* from, Bf16* to, std::int64_t count) {
    launch(stream, count, round_each, from, to, count);
}

}  // namespace pw::cuda
