#include "exec/cpu/layers.h"
#include "exec/cpu/parallel.h"
#include "exec/cpu/sequence_loops.h"
#include "exec/training/heads.h"
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

// Row t attends to the rows up to itself. saved: the probabilities of every head, {samples, heads, rows, rows}; a row
// has only those of the blocks up to its own.
class Attention : public CpuLayer {
public:
    Attention(const Layer& layer, int samples)
        : CpuLayer(layer, samples),
          columns_(layer),
          rows_(layer.input.height),
          head_width_(columns_.head_width),
          heads_(std::int64_t{samples} * layer.heads),
          scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(head_width_)))) {
        bytes_.saved_until_input = aligned(heads_ * rows_ * rows_ * static_cast<Bytes>(sizeof(float)));
        bytes_.scratch = aligned(heads_ * kRows * rows_ * static_cast<Bytes>(sizeof(float)));
    }

    void forward(const LayerArgs& args, bool save) override {
        for_all(heads_, [&](std::int64_t head) {
            const Columns<In> in = columns_of<In>(args.inputs, head);
            const Out y = rows_of<Out>(args.output, columns_.output, head);
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

    // Heads that share their keys and values are done one after the other.
    void backward_input(const LayerArgs& args) override {
        const std::int64_t shared_by = columns_.keys.shared_by;
        for_all(heads_ / shared_by, [&](std::int64_t group) {
            for (std::int64_t head = group * shared_by; head < (group + 1) * shared_by; ++head)
                backward_head(args, head, head % shared_by > 0);
        });
    }

private:
    template <class Rows>
    struct Columns {
        Rows queries, keys, values;
    };

    // Returns the rows of a head in a tensor, from its first column on, or no rows if there is no tensor.
    template <class Rows, class Byte>
    Rows rows_of(Byte* tensor, const HeadColumns& columns, std::int64_t head) const {
        return {tensor ? floats(tensor) + columns_.first_of(head, columns) : nullptr, columns.row_width};
    }
    template <class Rows, class Tensors>
    Columns<Rows> columns_of(const Tensors& tensors, std::int64_t head) const {
        const auto rows = [&](const HeadColumns& columns) {
            return rows_of<Rows>(tensors[columns.tensor], columns, head);
        };
        return {rows(columns_.queries), rows(columns_.keys), rows(columns_.values)};
    }

    // The last rows come first: they attend to all keys and values, so that they write the gradients of all of these,
    // unless an earlier head has `begun` them; the other rows add to them.
    void backward_head(const LayerArgs& args, std::int64_t head, bool begun) {
        const Columns<In> in = columns_of<In>(args.inputs, head);
        const Columns<Out> made = columns_of<Out>(args.input_gradients, head);
        const In dy = rows_of<In>(args.output_gradient, columns_.output, head);
        const Out slopes = scratch(args, head);
        for (std::int64_t first = (rows_ - 1) / kRows * kRows; first >= 0; first -= kRows) {
            const std::int64_t rows = std::min(kRows, rows_ - first), seen = first + rows;
            const float keep = begun || seen < rows_ ? 1 : 0;
            const In probabilities = saved(args, head).from(first);
            multiply('N', 'T', rows, seen, head_width_, 1, dy.from(first), in.values, 0, slopes);
            for (std::int64_t row = 0; row < rows; ++row)
                softmax_gradient(probabilities.from(row).first, slopes.from(row).first, seen, scale_);
            if (made.queries.first)
                multiply('N', 'N', rows, head_width_, seen, 1, slopes, in.keys, 0, made.queries.from(first));
            if (made.keys.first)
                multiply('T', 'N', seen, head_width_, rows, 1, slopes, in.queries.from(first), keep, made.keys);
            if (made.values.first)
                multiply('T', 'N', seen, head_width_, rows, 1, probabilities, dy.from(first), keep, made.values);
        }
    }

    Out saved(const LayerArgs& args, std::int64_t head) const {
        return {floats(args.saved) + head * rows_ * rows_, rows_};
    }
    Out scratch(const LayerArgs& args, std::int64_t head) const {
        return {floats(args.scratch) + head * kRows * rows_, rows_};
    }

    // Calls work(0) to work(count - 1), on all threads.
    template <class Work>
    void for_all(std::int64_t count, Work work) {
        in_shares(count, [&](std::int64_t first, std::int64_t share) {
            for (std::int64_t number = first; number < first + share; ++number)
                work(number);
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

    AttentionColumns columns_;
    std::int64_t rows_, head_width_;
    std::int64_t heads_;  // of all samples
    float scale_;
    std::atomic<int> failure_ = dnnl_success;  // an exception must not leave a thread's share
};

}  // namespace

std::unique_ptr<LayerKernel> make_attention(const Layer& layer, int samples) {
    return std::make_unique<Attention>(layer, samples);
}

}  // namespace pw::cpu
