#include "exec/reference/layers.h"

#include <cmath>

namespace pw::reference {

namespace {

// A row of the input has the queries, keys and values of all heads. Row t attends to the rows up to itself. saved:
// the probabilities of every head, {samples, heads, rows, rows}.
template <class Real>
class Attention : public PlainLayer<Real> {
public:
    Attention(const Layer& layer, int samples)
        : PlainLayer<Real>(layer, samples),
          rows_(layer.input.height),
          width_(layer.output.width),
          head_width_(width_ / layer.heads),
          scale_(1 / std::sqrt(static_cast<double>(head_width_))),
          probabilities_(rows_ * rows_) {
        this->bytes_.saved_until_input = bytes_of<Real>(samples * layer.heads * probabilities_);
        this->bytes_.scratch = bytes_of<double>(rows_ + 3 * rows_ * head_width_);
    }

    void forward(const LayerArgs& args, bool save) override {
        auto* seen = reinterpret_cast<double*>(args.scratch);
        for_heads([&](std::int64_t n, std::int64_t head) {
            const Head in = head_of(this->reals(args.inputs[0]), n, head);
            for (std::int64_t row = 0; row < rows_; ++row) {
                softmax(in, row, seen);
                Real* y = this->reals(args.output) + (n * rows_ + row) * width_ + head * head_width_;
                for (std::int64_t i = 0; i < head_width_; ++i) {
                    double sum = 0;
                    for (std::int64_t other = 0; other <= row; ++other)
                        sum += seen[other] * real(in.value(other)[i]);
                    y[i] = static_cast<Real>(sum);
                }
                if (save)
                    save_row(args, n, head, row, seen);
            }
        });
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        auto* sums = reinterpret_cast<double*>(args.scratch) + rows_;  // after the gradients of a row's scores
        const std::int64_t count = rows_ * head_width_;
        const Gradients gradients{sums, sums + count, sums + 2 * count, head_width_};
        for_heads([&](std::int64_t n, std::int64_t head) {
            std::fill_n(sums, 3 * count, 0.0);
            for (std::int64_t row = 0; row < rows_; ++row)
                add_gradients(args, n, head, row, gradients);
            const auto made = head_of(this->reals(args.input_gradients[0]), n, head);
            for (std::int64_t row = 0; row < rows_; ++row)
                for (std::int64_t i = 0; i < head_width_; ++i) {
                    made.query(row)[i] = static_cast<Real>(gradients.query(row)[i]);
                    made.key(row)[i] = static_cast<Real>(gradients.key(row)[i]);
                    made.value(row)[i] = static_cast<Real>(gradients.value(row)[i]);
                }
        });
    }

private:
    // The columns of one head in the rows of one sample.
    template <class Value>
    struct Columns {
        Value* first;
        std::int64_t width;
        Value* query(std::int64_t row) const { return first + row * 3 * width; }
        Value* key(std::int64_t row) const { return query(row) + width; }
        Value* value(std::int64_t row) const { return query(row) + 2 * width; }
    };
    using Head = Columns<const Real>;

    // The gradients of one head: sums over its rows.
    struct Gradients {
        double *queries, *keys, *values;
        std::int64_t width;
        double* query(std::int64_t row) const { return queries + row * width; }
        double* key(std::int64_t row) const { return keys + row * width; }
        double* value(std::int64_t row) const { return values + row * width; }
    };

    template <class Value>
    Columns<Value> head_of(Value* tensor, std::int64_t n, std::int64_t head) const {
        return {tensor + n * rows_ * 3 * width_ + head * head_width_, width_};
    }

    template <class Visit>
    void for_heads(Visit visit) const {
        for (std::int64_t n = 0; n < this->samples_; ++n)
            for (std::int64_t head = 0; head < this->layer_.heads; ++head)
                visit(n, head);
    }

    static double real(Real value) { return static_cast<double>(value); }

    double product(const Real* left, const Real* right) const {
        double sum = 0;
        for (std::int64_t i = 0; i < head_width_; ++i)
            sum += real(left[i]) * real(right[i]);
        return sum;
    }

    // Computes the probabilities of row `row` over the rows up to itself.
    void softmax(const Head& in, std::int64_t row, double* seen) const {
        double largest = -INFINITY, sum = 0;
        for (std::int64_t other = 0; other <= row; ++other) {
            seen[other] = scale_ * product(in.query(row), in.key(other));
            largest = std::max(largest, seen[other]);
        }
        for (std::int64_t other = 0; other <= row; ++other) {
            seen[other] = std::exp(seen[other] - largest);
            sum += seen[other];
        }
        for (std::int64_t other = 0; other <= row; ++other)
            seen[other] /= sum;
    }

    Real* saved_row(const LayerArgs& args, std::int64_t n, std::int64_t head, std::int64_t row) const {
        return this->reals(args.saved) + (n * this->layer_.heads + head) * probabilities_ + row * rows_;
    }

    void save_row(const LayerArgs& args, std::int64_t n, std::int64_t head, std::int64_t row,
                  const double* seen) const {
        Real* saved = saved_row(args, n, head, row);
        for (std::int64_t other = 0; other < rows_; ++other)
            saved[other] = static_cast<Real>(other <= row ? seen[other] : 0);
    }

    // Adds the contributions of one row of the output gradient to the gradients of its query, and of its keys and
    // values.
    void add_gradients(const LayerArgs& args, std::int64_t n, std::int64_t head, std::int64_t row,
                       const Gradients& sums) const {
        const Head in = head_of(this->reals(args.inputs[0]), n, head);
        const Real* dy = this->reals(args.output_gradient) + (n * rows_ + row) * width_ + head * head_width_;
        const Real* seen = saved_row(args, n, head, row);
        auto* slope = reinterpret_cast<double*>(args.scratch);
        double mean = 0;
        for (std::int64_t other = 0; other <= row; ++other) {
            slope[other] = product(dy, in.value(other));
            mean += slope[other] * real(seen[other]);
        }
        for (std::int64_t other = 0; other <= row; ++other) {
            const double score = scale_ * real(seen[other]) * (slope[other] - mean);
            for (std::int64_t i = 0; i < head_width_; ++i) {
                sums.query(row)[i] += score * real(in.key(other)[i]);
                sums.key(other)[i] += score * real(in.query(row)[i]);
                sums.value(other)[i] += real(seen[other]) * real(dy[i]);
            }
        }
    }

    std::int64_t rows_, width_, head_width_;
    double scale_;
    std::int64_t probabilities_;  // of one head
};

}  // namespace

template <class Real>
std::unique_ptr<LayerKernel> make_attention(const Layer& layer, int samples) {
    return std::make_unique<Attention<Real>>(layer, samples);
}
template std::unique_ptr<LayerKernel> make_attention<float>(const Layer&, int);
template std::unique_ptr<LayerKernel> make_attention<double>(const Layer&, int);

}  // namespace pw::reference
