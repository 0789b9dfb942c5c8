#include "exec/reference/layers.h"
#include "exec/training/heads.h"

#include <cmath>

namespace pw::reference {

namespace {

// Row t of the sequence attends to the rows up to itself, including the rows of earlier slices. saved: the
// probabilities of every head, {samples, heads, rows, rows of all slices}.
template <class Real>
class Attention : public PlainLayer<Real> {
public:
    Attention(const Layer& layer, int samples)
        : PlainLayer<Real>(layer, samples),
          columns_(layer),
          heads_(std::int64_t{samples} * layer.heads),
          rows_(layer.input.height),
          all_rows_(rows_ * layer.slices),
          head_width_(columns_.head_width),
          scale_(1 / std::sqrt(static_cast<double>(head_width_))) {
        this->bytes_.saved_until_input = bytes_of<Real>(heads_ * rows_ * all_rows_);
        this->bytes_.scratch = bytes_of<double>(all_rows_ + (rows_ + 2 * all_rows_) * head_width_);
    }

    void forward(const LayerArgs& args, bool save) override {
        auto* seen = reinterpret_cast<double*>(args.scratch);
        for (std::int64_t head = 0; head < heads_; ++head) {
            const Rows<Real> y = rows_of(this->reals(args.output), columns_.output, head);
            for (std::int64_t row = 0; row < rows_; ++row) {
                softmax(args, head, row, seen);
                for (std::int64_t i = 0; i < head_width_; ++i) {
                    double sum = 0;
                    for (std::int64_t other = 0; other <= in_sequence(args, row); ++other)
                        sum += seen[other] * real(row_of(args, columns_.values, head, other)[i]);
                    y[row][i] = static_cast<Real>(sum);
                }
                if (save)
                    save_row(args, head, row, seen);
            }
        }
    }

    // The gradients of keys and values are sums over the heads that share them.
    void backward_input(const LayerArgs& args) override {
        auto* first = reinterpret_cast<double*>(args.scratch) + all_rows_;  // after the gradients of a row's scores
        const std::int64_t count = rows_ * head_width_, seen = in_sequence(args, rows_) * head_width_;
        const std::int64_t shared_by = columns_.keys.shared_by;
        const Head sums{{first, head_width_}, {first + count, head_width_}, {first + count + seen, head_width_}};
        for (std::int64_t head = 0; head < heads_; ++head) {
            std::fill_n(first, head % shared_by == 0 ? count + 2 * seen : count, 0.0);
            for (std::int64_t row = 0; row < rows_; ++row)
                add_gradients(args, head, row, sums);
            write_sums(args, columns_.queries, head, sums.queries, nullptr);
            if (head % shared_by < shared_by - 1)
                continue;
            write_shared_sums(args, columns_.keys, head, sums.keys, 0);
            write_shared_sums(args, columns_.values, head, sums.values, kept_bytes(this->bytes_.output, columns_));
        }
    }

private:
    // The rows of a head.
    template <class Value>
    struct Rows {
        Value* first;
        std::int64_t width;  // values from a row to the next row
        Value* operator[](std::int64_t row) const { return first + row * width; }
    };
    struct Head {
        Rows<double> queries, keys, values;
    };

    std::int64_t in_sequence(const LayerArgs& args, std::int64_t row) const { return args.slice * rows_ + row; }

    template <class Value>
    Rows<Value> rows_of(Value* tensor, const HeadColumns& columns, std::int64_t head) const {
        return {tensor + columns_.first_of(head, columns), columns.row_width};
    }
    // Returns a row of the sequence, of the own slice or an earlier slice.
    const Real* row_of(const LayerArgs& args, const HeadColumns& columns, std::int64_t head, std::int64_t row) const {
        const std::int64_t slice = row / rows_;
        const std::byte* const tensor = slice < args.slice
                                            ? args.earlier[static_cast<std::size_t>(slice)].inputs[columns.tensor]
                                            : args.inputs[columns.tensor];
        return rows_of(this->reals(tensor), columns, head)[row % rows_];
    }

    static double real(Real value) { return static_cast<double>(value); }

    double product(const Real* left, const Real* right) const {
        double sum = 0;
        for (std::int64_t i = 0; i < head_width_; ++i)
            sum += real(left[i]) * real(right[i]);
        return sum;
    }

    // Computes the probabilities of a row of the own slice over the rows of the sequence up to itself.
    void softmax(const LayerArgs& args, std::int64_t head, std::int64_t own_row, double* seen) const {
        const std::int64_t row = in_sequence(args, own_row);
        const Real* const query = row_of(args, columns_.queries, head, row);
        double largest = -INFINITY, sum = 0;
        for (std::int64_t other = 0; other <= row; ++other) {
            seen[other] = scale_ * product(query, row_of(args, columns_.keys, head, other));
            largest = std::max(largest, seen[other]);
        }
        for (std::int64_t other = 0; other <= row; ++other) {
            seen[other] = std::exp(seen[other] - largest);
            sum += seen[other];
        }
        for (std::int64_t other = 0; other <= row; ++other)
            seen[other] /= sum;
    }

    Real* saved_row(const LayerArgs& args, std::int64_t head, std::int64_t row) const {
        return this->reals(args.saved) + (head * rows_ + row) * all_rows_;
    }

    void save_row(const LayerArgs& args, std::int64_t head, std::int64_t row, const double* seen) const {
        Real* saved = saved_row(args, head, row);
        for (std::int64_t other = 0; other < all_rows_; ++other)
            saved[other] = static_cast<Real>(other <= in_sequence(args, row) ? seen[other] : 0);
    }

    // Adds the contributions of a row of the output gradient to the gradients of its query, and of its keys and
    // values.
    void add_gradients(const LayerArgs& args, std::int64_t head, std::int64_t row, const Head& sums) const {
        const std::int64_t last = in_sequence(args, row);
        const Real* const query = row_of(args, columns_.queries, head, last);
        const Real* dy = rows_of(this->reals(args.output_gradient), columns_.output, head)[row];
        const Real* seen = saved_row(args, head, row);
        auto* slope = reinterpret_cast<double*>(args.scratch);
        double mean = 0;
        for (std::int64_t other = 0; other <= last; ++other) {
            slope[other] = product(dy, row_of(args, columns_.values, head, other));
            mean += slope[other] * real(seen[other]);
        }
        for (std::int64_t other = 0; other <= last; ++other) {
            const double score = scale_ * real(seen[other]) * (slope[other] - mean);
            const Real* const key = row_of(args, columns_.keys, head, other);
            for (std::int64_t i = 0; i < head_width_; ++i) {
                sums.queries[row][i] += score * real(key[i]);
                sums.keys[other][i] += score * real(query[i]);
                sums.values[other][i] += real(seen[other]) * real(dy[i]);
            }
        }
    }

    // Writes sums of the own slice, with what later slices added, if any.
    void write_sums(const LayerArgs& args, const HeadColumns& columns, std::int64_t head, const Rows<double>& sums,
                    const Real* later) const {
        std::byte* gradient = args.input_gradients[columns.tensor];
        if (!gradient)
            return;
        const Rows<Real> made = rows_of(this->reals(gradient), columns, head);
        for (std::int64_t row = 0; row < rows_; ++row)
            for (std::int64_t i = 0; i < head_width_; ++i)
                made[row][i] =
                    static_cast<Real>(sums[row][i] + (later ? real(later[row * columns_.kept_width() + i]) : 0));
    }

    // Does the same for keys or values, which earlier slices have, too. These are kept from `first` on.
    void write_shared_sums(const LayerArgs& args, const HeadColumns& columns, std::int64_t head,
                           const Rows<double>& sums, Bytes first) const {
        const std::int64_t at = columns_.first_kept(head, columns);
        const bool is_last = args.slice + 1 == this->layer_.slices;
        for (int slice = 0; slice < args.slice; ++slice) {
            Real* kept = this->reals(args.earlier[static_cast<std::size_t>(slice)].gradients + first) + at;
            for (std::int64_t row = 0; row < rows_; ++row)
                for (std::int64_t i = 0; i < head_width_; ++i)
                    put(kept[row * columns_.kept_width() + i], sums[slice * rows_ + row][i], !is_last);
        }
        const Real* later = args.later_gradients ? this->reals(args.later_gradients + first) + at : nullptr;
        write_sums(args, columns, head, {sums[in_sequence(args, 0)], head_width_}, later);
    }

    AttentionColumns columns_;
    std::int64_t heads_;                         // of all samples
    std::int64_t rows_, all_rows_, head_width_;  // rows of a slice, and of all
    double scale_;
};

}  // namespace

extern const LayerRow kAttention = row_of<Attention>(LayerKind::Attention);
extern const LayerRow kGroupedAttention = row_of<Attention>(LayerKind::GroupedAttention);

}  // namespace pw::reference
