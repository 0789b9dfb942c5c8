#include "exec/cpu/layers.h"
#include "exec/cpu/parallel.h"
#include "exec/cpu/sequence_loops.h"
#include "workloads/error.h"

#include <algorithm>
#include <atomic>
#include <cmath>

namespace pw::cpu {

namespace {

constexpr std::int64_t kRows = 32;  // of scores at once; columns beyond the last of these rows are not computed

// A matrix within a larger one; its rows are `stride` floats apart.
template <class Value>
struct Matrix {
    Value* first;
    std::int64_t stride;
    Matrix from(std::int64_t row) const { return {first + row * stride, stride}; }
    operator Matrix<const Value>() const { return {first, stride}; }
};
using In = Matrix<const float>;
using Out = Matrix<float>;

// A row of the input has the queries, keys and values of all heads. Row t attends to the rows up to itself. saved:
// the probabilities of every head, {samples, heads, rows, rows}; a row has only those of the blocks up to its own.
class Attention : public CpuLayer {
public:
    Attention(const Layer& layer, int samples)
        : CpuLayer(layer, samples),
          rows_(layer.input.height),
          width_(layer.output.width),
          head_width_(width_ / layer.heads),
          heads_(std::int64_t{samples} * layer.heads),
          scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(head_width_)))) {
        bytes_.saved_until_input = aligned(heads_ * rows_ * rows_ * static_cast<Bytes>(sizeof(float)));
        bytes_.scratch = aligned(heads_ * kRows * rows_ * static_cast<Bytes>(sizeof(float)));
    }

    void forward(const LayerArgs& args, bool save) override {
        for_heads([&](std::int64_t head) {
            const Columns<In> in = columns_of(In{floats(args.inputs[0]), 3 * width_}, head);
            const Out y = rows_of(Out{floats(args.output), width_}, head);
            for (std::int64_t first = 0; first < rows_; first += kRows) {
                const std::int64_t rows = std::min(kRows, rows_ - first), seen = first + rows;
                const Out scores = save ? saved(args, head).from(first) : scratch(args, head);
                multiply('N', 'T', rows, seen, head_width_, scale_, in.queries.from(first), in.keys, 0, scores);
                for (std::int64_t row = 0; row < rows; ++row)
                    causal_softmax(scores.from(row).first, first + row + 1, seen);
                multiply('N', 'N', rows, head_width_, seen, 1, scores, in.values, 0, y.from(first));
            }
        });
    }

    // The last rows come first: they attend to all keys and values, so that they write the gradients of all of
    // these, and the other rows add to them.
    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        for_heads([&](std::int64_t head) {
            const Columns<In> in = columns_of(In{floats(args.inputs[0]), 3 * width_}, head);
            const Columns<Out> made = columns_of(Out{floats(args.input_gradients[0]), 3 * width_}, head);
            const In dy = rows_of(In{floats(args.output_gradient), width_}, head);
            const Out slopes = scratch(args, head);
            for (std::int64_t first = (rows_ - 1) / kRows * kRows; first >= 0; first -= kRows) {
                const std::int64_t rows = std::min(kRows, rows_ - first), seen = first + rows;
                const float begun = seen < rows_ ? 1 : 0;
                const In probabilities = saved(args, head).from(first);
                multiply('N', 'T', rows, seen, head_width_, 1, dy.from(first), in.values, 0, slopes);
                for (std::int64_t row = 0; row < rows; ++row)
                    softmax_gradient(probabilities.from(row).first, slopes.from(row).first, seen, scale_);
                multiply('N', 'N', rows, head_width_, seen, 1, slopes, in.keys, 0, made.queries.from(first));
                multiply('T', 'N', seen, head_width_, rows, 1, slopes, in.queries.from(first), begun, made.keys);
                multiply('T', 'N', seen, head_width_, rows, 1, probabilities, dy.from(first), begun, made.values);
            }
        });
    }

private:
    template <class Rows>
    struct Columns {
        Rows queries, keys, values;
    };

    // Returns the rows of a head in a tensor, from its first column on; `head` counts the heads of all samples.
    template <class Rows>
    Rows rows_of(const Rows& tensor, std::int64_t head) const {
        Rows rows = tensor.from(head / layer_.heads * rows_);
        rows.first += head % layer_.heads * head_width_;
        return rows;
    }
    template <class Rows>
    Columns<Rows> columns_of(const Rows& tensor, std::int64_t head) const {
        const Rows rows = rows_of(tensor, head);
        return {rows, {rows.first + width_, rows.stride}, {rows.first + 2 * width_, rows.stride}};
    }

    Out saved(const LayerArgs& args, std::int64_t head) const {
        return {floats(args.saved) + head * rows_ * rows_, rows_};
    }
    Out scratch(const LayerArgs& args, std::int64_t head) const {
        return {floats(args.scratch) + head * kRows * rows_, rows_};
    }

    template <class Work>
    void for_heads(Work work) {
        in_shares(heads_, [&](std::int64_t first, std::int64_t count) {
            for (std::int64_t head = first; head < first + count; ++head)
                work(head);
        });
        if (failure_ != dnnl_success)
            fail_with(ExitCode::RunFailed, "layer '{}': oneDNN failed with status {}", layer_.name, failure_.load());
    }

    // c = factor * op(a) * op(b) + keep * c, with m x n values, of sums of k products. 'T' transposes.
    void multiply(char transpose_a, char transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float factor,
                  const In& a, const In& b, float keep, const Out& c) {
        const dnnl_status_t status = dnnl_sgemm(transpose_a, transpose_b, m, n, k, factor, a.first, a.stride, b.first,
                                                b.stride, keep, c.first, c.stride);
        if (status != dnnl_success)
            failure_ = status;
    }

    std::int64_t rows_, width_, head_width_;
    std::int64_t heads_;  // of all samples
    float scale_;
    std::atomic<int> failure_ = dnnl_success;  // an exception must not leave a thread's share
};

}  // namespace

std::unique_ptr<LayerKernel> make_attention(const Layer& layer, int samples) {
    return std::make_unique<Attention>(layer, samples);
}

}  // namespace pw::cpu
