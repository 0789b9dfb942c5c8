#include "exec/cpu/layers.h"
#include "exec/cpu/parallel.h"
#include "exec/cpu/sequence_loops.h"
#include "exec/training/heads.h"

#include <algorithm>
#include <atomic>
#include <cmath>

namespace pw::cpu {

namespace {

constexpr std::int64_t kRows = 32;  // of scores at once (columns beyond the last of these rows are not computed)

// A matrix within a larger matrix. Its rows are `stride` floats apart.
template <class Value>
struct Matrix {
    Value* first = nullptr;
    std::int64_t stride = 0;
    Matrix from(std::int64_t row) const { return {first + row * stride, stride}; }
    Matrix column(std::int64_t column) const { return {first + column, stride}; }
    operator Matrix<const Value>() const { return {first, stride}; }
};
using In = Matrix<const float>;
using Out = Matrix<float>;

// Row t of the sequence attends to the rows up to itself, including the rows of earlier slices. saved: the
// probabilities of every head, {samples, heads, rows, rows of all slices}. A row has only the probabilities of the
// blocks up to its own block.
class Attention : public CpuLayer {
public:
    Attention(const Layer& layer, int samples)
        : CpuLayer(layer, samples),
          columns_(layer),
          rows_(layer.input.height),
          all_rows_(rows_ * layer.slices),
          head_width_(columns_.head_width),
          heads_(std::int64_t{samples} * layer.heads),
          scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(head_width_)))) {
        bytes_.saved_until_input = aligned(heads_ * rows_ * all_rows_ * static_cast<Bytes>(sizeof(float)));
        bytes_.scratch = aligned(heads_ * kRows * all_rows_ * static_cast<Bytes>(sizeof(float)));
    }

    void forward(const LayerArgs& args, bool save) override {
        for_all(heads_, [&](std::int64_t head) {
            const Columns<In> in = columns_of<In>(args.inputs, head);
            const Out y = rows_of<Out>(args.output, columns_.output, head);
            const std::int64_t before = args.slice * rows_;  // rows of earlier slices
            for (std::int64_t first = 0; first < rows_; first += kRows) {
                const std::int64_t rows = std::min(kRows, rows_ - first), seen = first + rows;
                const Out scores = save ? saved(args, head).from(first) : scratch(args, head);
                const In queries = in.queries.from(first);
                for_slices(args, head, seen, [&](const Slice& slice) {
                    multiply('N', 'T', rows, slice.seen, head_width_, scale_, queries, slice.in.keys, 0,
                             scores.column(slice.first));
                });
                for (std::int64_t row = 0; row < rows; ++row)
                    causal_softmax(scores.from(row).first, before + first + row + 1, before + seen);
                for_slices(args, head, seen, [&](const Slice& slice) {
                    multiply('N', 'N', rows, head_width_, slice.seen, 1, scores.column(slice.first), slice.in.values,
                             slice.first > 0 ? 1 : 0, y.from(first));
                });
            }
        });
    }

    // Heads that share their keys and values are done in sequence.
    void backward_input(const LayerArgs& args) override {
        const std::int64_t shared_by = columns_.keys.shared_by;
        for_all(heads_ / shared_by, [&](std::int64_t group) {
            for (std::int64_t head = group * shared_by; head < (group + 1) * shared_by; ++head)
                backward_head(args, head, head % shared_by > 0);
            if (args.later_gradients)
                add_later(args, group * shared_by);
        });
    }

private:
    template <class Rows>
    struct Columns {
        Rows queries{}, keys{}, values{};
    };

    // The rows of a slice that a block of rows sees.
    struct Slice {
        std::int64_t first, seen;  // the first row in the sequence, and the number of rows
        Columns<In> in;
        Columns<Out> made;  // gradients (not of queries for an earlier slice)
        bool is_own;
    };

    // Calls visit() for the earlier slices and for the own one, of which the block sees `seen` rows.
    template <class Visit>
    void for_slices(const LayerArgs& args, std::int64_t head, std::int64_t seen, Visit visit) const {
        for (int slice = 0; slice < args.slice; ++slice) {
            const EarlierSlice& earlier = args.earlier[static_cast<std::size_t>(slice)];
            visit(Slice{slice * rows_, rows_, columns_of<In>(earlier.inputs, head),
                        kept_of<Out>(earlier.gradients, head), false});
        }
        visit(Slice{args.slice * rows_, seen, columns_of<In>(args.inputs, head),
                    args.input_gradients.empty() ? Columns<Out>{} : columns_of<Out>(args.input_gradients, head), true});
    }

    // Returns the rows of a head in EarlierSlice::gradients.
    template <class Rows, class Byte>
    Columns<Rows> kept_of(Byte* gradients, std::int64_t head) const {
        const auto rows = [&](const HeadColumns& columns, Bytes first) {
            return Rows{gradients ? floats(gradients + first) + columns_.first_kept(head, columns) : nullptr,
                        columns_.kept_width()};
        };
        return {{}, rows(columns_.keys, 0), rows(columns_.values, kept_bytes(bytes_.output, columns_))};
    }

    // Adds what later slices kept for the keys and values of a head.
    void add_later(const LayerArgs& args, std::int64_t head) const {
        const Columns<In> later = kept_of<In>(args.later_gradients, head);
        const Columns<Out> made = columns_of<Out>(args.input_gradients, head);
        const auto add_all = [&](const In& from, const Out& to) {
            for (std::int64_t row = 0; to.first && row < rows_; ++row)
                add_rows(to.from(row).first, from.from(row).first, to.from(row).first, head_width_);
        };
        add_all(later.keys, made.keys);
        add_all(later.values, made.values);
    }

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

    // The last rows come first: they attend to all keys and values, so they write the gradients of all keys and
    // values, unless an earlier head has `begun` these gradients. The remaining rows add to them. The gradients of
    // earlier slices are written in the last slice only.
    void backward_head(const LayerArgs& args, std::int64_t head, bool begun) {
        const Columns<In> in = columns_of<In>(args.inputs, head);
        const std::int64_t before = args.slice * rows_;
        const bool is_last = args.slice + 1 == layer_.slices;
        const In dy = rows_of<In>(args.output_gradient, columns_.output, head);
        const Out slopes = scratch(args, head);
        for (std::int64_t first = (rows_ - 1) / kRows * kRows; first >= 0; first -= kRows) {
            const std::int64_t rows = std::min(kRows, rows_ - first), seen = first + rows;
            const bool adds = begun || seen < rows_;
            const Out probabilities = saved(args, head).from(first);
            const In own_dy = dy.from(first), queries = in.queries.from(first);
            const Out own_queries = columns_of<Out>(args.input_gradients, head).queries;
            for_slices(args, head, seen, [&](const Slice& slice) {
                multiply('N', 'T', rows, slice.seen, head_width_, 1, own_dy, slice.in.values, 0,
                         slopes.column(slice.first));
            });
            for (std::int64_t row = 0; row < rows; ++row)
                softmax_gradient(probabilities.from(row).first, slopes.from(row).first, before + seen, scale_);
            for_slices(args, head, seen, [&](const Slice& slice) {
                const In of_slice = slopes.column(slice.first);
                const float keep = adds || (!slice.is_own && !is_last) ? 1 : 0;
                if (own_queries.first)
                    multiply('N', 'N', rows, head_width_, slice.seen, 1, of_slice, slice.in.keys,
                             slice.first > 0 ? 1 : 0, own_queries.from(first));
                if (slice.made.keys.first)
                    multiply('T', 'N', slice.seen, head_width_, rows, 1, of_slice, queries, keep, slice.made.keys);
                if (slice.made.values.first)
                    multiply('T', 'N', slice.seen, head_width_, rows, 1, probabilities.column(slice.first), own_dy,
                             keep, slice.made.values);
            });
        }
    }

    Out saved(const LayerArgs& args, std::int64_t head) const {
        return {floats(args.saved) + head * rows_ * all_rows_, all_rows_};
    }
    Out scratch(const LayerArgs& args, std::int64_t head) const {
        return {floats(args.scratch) + head * kRows * all_rows_, all_rows_};
    }

    // Calls work(0) to work(count - 1), on all threads.
    template <class Work>
    void for_all(std::int64_t count, Work work) {
        in_shares(count, [&](std::int64_t first, std::int64_t share) {
            for (std::int64_t number = first; number < first + share; ++number)
                work(number);
        });
        if (failure_ != dnnl_success)
            fail_for(dnnl::error(static_cast<dnnl_status_t>(failure_.load()), "a product"), layer_.name, "failed");
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
    std::int64_t rows_, all_rows_, head_width_;  // rows of a slice, and of all
    std::int64_t heads_;                         // of all samples
    float scale_;
    std::atomic<int> failure_ = dnnl_success;  // an exception must not leave a thread's share
};

}  // namespace

extern const LayerRow kAttention = row_of<Attention>(LayerKind::Attention);
extern const LayerRow kGroupedAttention = row_of<Attention>(LayerKind::GroupedAttention);

}  // namespace pw::cpu
