#include "exec/reference/layers.h"
#include "exec/training/heads.h"

#include <cmath>

namespace pw::reference {

namespace {

// Row t attends to the rows up to itself. saved: the probabilities of every head, {samples, heads, rows, rows}.
template <class Real>
class Attention : public PlainLayer<Real> {
public:
    Attention(const Layer& layer, int samples)
        : PlainLayer<Real>(layer, samples),
          columns_(layer),
          heads_(std::int64_t{samples} * layer.heads),
          rows_(layer.input.height),
          head_width_(columns_.head_width),
          scale_(1 / std::sqrt(static_cast<double>(head_width_))) {
        this->bytes_.saved_until_input = bytes_of<Real>(heads_ * rows_ * rows_);
        this->bytes_.scratch = bytes_of<double>(rows_ + 3 * rows_ * head_width_);
    }

    void forward(const LayerArgs& args, bool save) override {
        auto* seen = reinterpret_cast<double*>(args.scratch);
        for (std::int64_t head = 0; head < heads_; ++head) {
            const Head<const Real> in = inputs_of(args, head);
            const Rows<Real> y = rows_of(this->reals(args.output), columns_.output, head);
            for (std::int64_t row = 0; row < rows_; ++row) {
                softmax(in, row, seen);
                for (std::int64_t i = 0; i < head_width_; ++i) {
                    double sum = 0;
                    for (std::int64_t other = 0; other <= row; ++other)
                        sum += seen[other] * real(in.values[other][i]);
                    y[row][i] = static_cast<Real>(sum);
                }
                if (save)
                    save_row(args, head, row, seen);
            }
        }
    }

    // The gradients of keys and values are sums over the heads that share them.
    void backward_input(const LayerArgs& args) override {
        auto* first = reinterpret_cast<double*>(args.scratch) + rows_;  // after the gradients of a row's scores
        const std::int64_t count = rows_ * head_width_, shared_by = columns_.keys.shared_by;
        const Head<double> sums{{first, head_width_}, {first + count, head_width_}, {first + 2 * count, head_width_}};
        for (std::int64_t head = 0; head < heads_; ++head) {
            std::fill_n(first, head % shared_by == 0 ? 3 * count : count, 0.0);
            for (std::int64_t row = 0; row < rows_; ++row)
                add_gradients(args, head, row, sums);
            store(args, columns_.queries, head, sums.queries);
            if (head % shared_by < shared_by - 1)
                continue;
            store(args, columns_.keys, head, sums.keys);
            store(args, columns_.values, head, sums.values);
        }
    }

private:
    // The rows of one head.
    template <class Value>
    struct Rows {
        Value* first;
        std::int64_t width;  // values from one row to the next
        Value* operator[](std::int64_t row) const { return first + row * width; }
    };
    template <class Value>
    struct Head {
        Rows<Value> queries, keys, values;
    };

    template <class Value>
    Rows<Value> rows_of(Value* tensor, const HeadColumns& columns, std::int64_t head) const {
        return {tensor + columns_.first_of(head, columns), columns.row_width};
    }
    Head<const Real> inputs_of(const LayerArgs& args, std::int64_t head) const {
        const auto rows = [&](const HeadColumns& columns) {
            return rows_of(this->reals(args.inputs[columns.tensor]), columns, head);
        };
        return {rows(columns_.queries), rows(columns_.keys), rows(columns_.values)};
    }

    static double real(Real value) { return static_cast<double>(value); }

    double product(const Real* left, const Real* right) const {
        double sum = 0;
        for (std::int64_t i = 0; i < head_width_; ++i)
            sum += real(left[i]) * real(right[i]);
        return sum;
    }

    // Computes the probabilities of row `row` over the rows up to itself.
    void softmax(const Head<const Real>& in, std::int64_t row, double* seen) const {
        double largest = -INFINITY, sum = 0;
        for (std::int64_t other = 0; other <= row; ++other) {
            seen[other] = scale_ * product(in.queries[row], in.keys[other]);
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
        return this->reals(args.saved) + (head * rows_ + row) * rows_;
    }

    void save_row(const LayerArgs& args, std::int64_t head, std::int64_t row, const double* seen) const {
        Real* saved = saved_row(args, head, row);
        for (std::int64_t other = 0; other < rows_; ++other)
            saved[other] = static_cast<Real>(other <= row ? seen[other] : 0);
    }

    // Adds the contributions of one row of the output gradient to the gradients of its query, and of its keys and
    // values.
    void add_gradients(const LayerArgs& args, std::int64_t head, std::int64_t row, const Head<double>& sums) const {
        const Head<const Real> in = inputs_of(args, head);
        const Real* dy = rows_of(this->reals(args.output_gradient), columns_.output, head)[row];
        const Real* seen = saved_row(args, head, row);
        auto* slope = reinterpret_cast<double*>(args.scratch);
        double mean = 0;
        for (std::int64_t other = 0; other <= row; ++other) {
            slope[other] = product(dy, in.values[other]);
            mean += slope[other] * real(seen[other]);
        }
        for (std::int64_t other = 0; other <= row; ++other) {
            const double score = scale_ * real(seen[other]) * (slope[other] - mean);
            for (std::int64_t i = 0; i < head_width_; ++i) {
                sums.queries[row][i] += score * real(in.keys[other][i]);
                sums.keys[other][i] += score * real(in.queries[row][i]);
                sums.values[other][i] += real(seen[other]) * real(dy[i]);
            }
        }
    }

    void store(const LayerArgs& args, const HeadColumns& columns, std::int64_t head, const Rows<double>& sums) const {
        std::byte* gradient = args.input_gradients[columns.tensor];
        if (!gradient)
            return;
        const Rows<Real> made = rows_of(this->reals(gradient), columns, head);
        for (std::int64_t row = 0; row < rows_; ++row)
            for (std::int64_t i = 0; i < head_width_; ++i)
                made[row][i] = static_cast<Real>(sums[row][i]);
    }

    AttentionColumns columns_;
    std::int64_t heads_;  // of all samples
    std::int64_t rows_, head_width_;
    double scale_;
};

}  // namespace

template <class Real>
std::unique_ptr<LayerKernel> make_attention(const Layer& layer, int samples) {
    return std::make_unique<Attention<Real>>(layer, samples);
}
template std::unique_ptr<LayerKernel> make_attention<float>(const Layer&, int);
template std::unique_ptr<LayerKernel> make_attention<double>(const Layer&, int);

}  // namespace pw::reference
