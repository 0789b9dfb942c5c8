#include "exec/reference/layers.h"

namespace pw::reference {

namespace {

// A linear layer of the flattened NCHW input, or of every row of a sequence. weights: {out, in}, then the bias if
// there is one.
template <class Real>
class Linear : public PlainLayer<Real> {
public:
    Linear(const Layer& layer, int samples)
        : PlainLayer<Real>(layer, samples),
          by_row_(layer.kind == LayerKind::RowLinear),
          has_bias_(!by_row_ || layer.bias),
          rows_(by_row_ ? std::int64_t{samples} * layer.input.height : samples),
          in_(by_row_ ? layer.input.width : layer.input.elements()),
          out_(by_row_ ? layer.output.width : layer.output.channels) {
        this->bytes_.weights = bytes_of<Real>(out_ * (in_ + (has_bias_ ? 1 : 0)));
    }

    void forward(const LayerArgs& args, bool) override {
        const Real* x = this->reals(args.inputs[0]);
        const Real* w = this->reals(args.weights);
        Real* y = this->reals(args.output);
        for (std::int64_t n = 0; n < rows_; ++n)
            sums(
                out_, in_, [&](std::int64_t o) { return has_bias_ ? real(w[out_ * in_ + o]) : 0; },
                [&](std::int64_t o, std::int64_t i) { return real(x[n * in_ + i]) * real(w[o * in_ + i]); },
                [&](std::int64_t o, double sum) { y[n * out_ + o] = static_cast<Real>(sum); });
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        const Real* w = this->reals(args.weights);
        const Real* dy = this->reals(args.output_gradient);
        Real* dx = this->reals(args.input_gradients[0]);
        for (std::int64_t n = 0; n < rows_; ++n)
            sums(
                in_, out_, zero,
                [&](std::int64_t i, std::int64_t o) { return real(dy[n * out_ + o]) * real(w[o * in_ + i]); },
                [&](std::int64_t i, double sum) { dx[n * in_ + i] = static_cast<Real>(sum); });
    }

    void backward_weight(const LayerArgs& args) override {
        const Real* x = this->reals(args.inputs[0]);
        const Real* dy = this->reals(args.output_gradient);
        Real* gradient = this->reals(args.weight_gradient);
        if (!args.accumulate)
            std::fill_n(args.weight_gradient, this->bytes_.weights, std::byte{});
        if (has_bias_)
            sums(
                out_, rows_, zero, [&](std::int64_t o, std::int64_t n) { return real(dy[n * out_ + o]); },
                [&](std::int64_t o, double sum) { put(gradient[out_ * in_ + o], sum, args.accumulate); });
        for (std::int64_t o = 0; o < out_; ++o)
            sums(
                in_, rows_, zero,
                [&](std::int64_t i, std::int64_t n) { return real(dy[n * out_ + o]) * real(x[n * in_ + i]); },
                [&](std::int64_t i, double sum) { put(gradient[o * in_ + i], sum, args.accumulate); });
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        std::fill_n(weights, this->bytes_.weights, std::byte{});
        std::ranges::copy(values[0], this->reals(weights));
        if (has_bias_)
            std::ranges::copy(values[1], this->reals(weights) + out_ * in_);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        const auto bias = out_ * in_ * static_cast<std::int64_t>(sizeof(Real));
        if (!has_bias_)
            return {this->read(weights, out_ * in_)};
        return {this->read(weights, out_ * in_), this->read(weights + bias, out_)};
    }

private:
    static double real(Real value) { return static_cast<double>(value); }

    static double zero(std::int64_t) { return 0; }

    // Stores `start` of every value plus `count` terms in index order. Several values are summed at once, as their
    // terms are neighbours in memory or independent.
    template <class Start, class Term, class Store>
    static void sums(std::int64_t values, std::int64_t count, Start start, Term term, Store store) {
        constexpr std::int64_t kTogether = 16;
        double sum[kTogether];
        for (std::int64_t first = 0; first < values; first += kTogether) {
            const std::int64_t width = std::min(kTogether, values - first);
            for (std::int64_t i = 0; i < width; ++i)
                sum[i] = start(first + i);
            for (std::int64_t term_number = 0; term_number < count; ++term_number)
                for (std::int64_t i = 0; i < width; ++i)
                    sum[i] += term(first + i, term_number);
            for (std::int64_t i = 0; i < width; ++i)
                store(first + i, sum[i]);
        }
    }

    bool by_row_, has_bias_;
    std::int64_t rows_, in_, out_;
};

}  // namespace

extern const LayerRow kLinear = row_of<Linear>(LayerKind::Linear);
extern const LayerRow kRowLinear = row_of<Linear>(LayerKind::RowLinear);

}  // namespace pw::reference
