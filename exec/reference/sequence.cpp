// Layers on rows of tokens: all except the products and attention.
#include "exec/reference/layers.h"
#include "exec/training/tokens.h"

#include <cmath>
#include <numbers>

namespace pw::reference {

namespace {

template <class Real>
double real(Real value) {
    return static_cast<double>(value);
}

// weights: the table {vocabulary, width}.
template <class Real>
class Embedding : public PlainLayer<Real> {
public:
    Embedding(const Layer& layer, int samples)
        : PlainLayer<Real>(layer, samples),
          width_(layer.output.width),
          values_(std::int64_t{layer.vocabulary} * layer.output.width) {
        this->bytes_.weights = bytes_of<Real>(values_);
        this->bytes_.scratch = bytes_of<double>(values_);  // sums of the table's gradient
    }

    void forward(const LayerArgs& args, bool) override {
        const Real* table = this->reals(args.weights);
        for (std::int64_t row = 0; row < this->inputs_; ++row)
            std::copy_n(table + token(args, row) * width_, width_, this->reals(args.output) + row * width_);
    }

    void backward_input(const LayerArgs&) override {}

    void backward_weight(const LayerArgs& args) override {
        auto* sums = reinterpret_cast<double*>(args.scratch);
        std::fill_n(sums, values_, 0.0);
        const Real* dy = this->reals(args.output_gradient);
        for (std::int64_t row = 0; row < this->inputs_; ++row)
            for (std::int64_t i = 0; i < width_; ++i)
                sums[token(args, row) * width_ + i] += real(dy[row * width_ + i]);
        if (!args.accumulate)
            std::fill_n(args.weight_gradient, this->bytes_.weights, std::byte{});
        for (std::int64_t i = 0; i < values_; ++i)
            put(this->reals(args.weight_gradient)[i], sums[i], args.accumulate);
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        std::fill_n(weights, this->bytes_.weights, std::byte{});
        this->fill(values[0], weights);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        return {this->read(weights, values_)};
    }

private:
    std::int64_t token(const LayerArgs& args, std::int64_t row) const {
        return token_in(this->reals(args.inputs[0])[row], this->layer_.vocabulary);
    }

    std::int64_t width_, values_;
};

// weights: a vector per position, as large as a sample.
template <class Real>
class PositionBias : public PlainLayer<Real> {
public:
    PositionBias(const Layer& layer, int samples) : PlainLayer<Real>(layer, samples), values_(layer.input.elements()) {
        this->bytes_.weights = bytes_of<Real>(values_);
    }

    void forward(const LayerArgs& args, bool) override {
        const Real* x = this->reals(args.inputs[0]);
        const Real* bias = this->reals(args.weights);
        for (std::int64_t i = 0; i < this->inputs_; ++i)
            this->reals(args.output)[i] = x[i] + bias[i % values_];
    }

    void backward_input(const LayerArgs& args) override {
        const Real* dy = this->reals(args.output_gradient);
        Real* gradient = this->reals(args.weight_gradient);
        if (!args.accumulate)
            std::fill_n(args.weight_gradient, this->bytes_.weights, std::byte{});
        for (std::int64_t i = 0; i < values_; ++i) {
            double sum = 0;
            for (std::int64_t n = 0; n < this->samples_; ++n)
                sum += real(dy[n * values_ + i]);
            put(gradient[i], sum, args.accumulate);
        }
        if (args.input_gradients[0])
            std::copy_n(dy, this->inputs_, this->reals(args.input_gradients[0]));
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        std::fill_n(weights, this->bytes_.weights, std::byte{});
        this->fill(values[0], weights);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        return {this->read(weights, values_)};
    }

private:
    std::int64_t values_;
};

// weights: scale, shift. saved: mean and 1 / deviation of every row.
template <class Real>
class LayerNorm : public PlainLayer<Real> {
public:
    LayerNorm(const Layer& layer, int samples)
        : PlainLayer<Real>(layer, samples),
          width_(layer.input.width),
          rows_(std::int64_t{samples} * layer.input.height) {
        this->bytes_.weights = bytes_of<Real>(2 * width_);
        this->bytes_.saved_until_input = bytes_of<Real>(2 * rows_);
    }

    void forward(const LayerArgs& args, bool save) override {
        const Real* scale = this->reals(args.weights);
        for (std::int64_t row = 0; row < rows_; ++row) {
            const Real* x = this->reals(args.inputs[0]) + row * width_;
            Real* y = this->reals(args.output) + row * width_;
            const double mean = mean_over([&](std::int64_t i) { return real(x[i]); });
            const double variance = mean_over([&](std::int64_t i) { return square(real(x[i]) - mean); });
            const double inverse = 1 / std::sqrt(variance + kNormEpsilon);
            for (std::int64_t i = 0; i < width_; ++i)
                y[i] = static_cast<Real>((real(x[i]) - mean) * inverse * real(scale[i]) + real(scale[width_ + i]));
            if (!save)
                continue;
            this->reals(args.saved)[2 * row] = static_cast<Real>(mean);
            this->reals(args.saved)[2 * row + 1] = static_cast<Real>(inverse);
        }
    }

    void backward_input(const LayerArgs& args) override {
        add_weight_gradients(args);
        if (!args.input_gradients[0])
            return;
        const Real* scale = this->reals(args.weights);
        for (std::int64_t row = 0; row < rows_; ++row) {
            const auto slope = [&](std::int64_t i) { return gradient(args, row, i) * real(scale[i]); };
            const auto normal = [&](std::int64_t i) { return normalised(args, row, i); };
            const double level = mean_over(slope);
            const double tilt = mean_over([&](std::int64_t i) { return slope(i) * normal(i); });
            for (std::int64_t i = 0; i < width_; ++i)
                this->reals(args.input_gradients[0])[row * width_ + i] =
                    static_cast<Real>(inverse(args, row) * (slope(i) - level - normal(i) * tilt));
        }
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        std::fill_n(weights, this->bytes_.weights, std::byte{});
        std::ranges::copy(values[0], this->reals(weights));
        std::ranges::copy(values[1], this->reals(weights) + width_);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        const auto second = width_ * static_cast<std::int64_t>(sizeof(Real));
        return {this->read(weights, width_), this->read(weights + second, width_)};
    }

private:
    static double square(double value) { return value * value; }

    template <class Term>
    double mean_over(Term term) const {
        double sum = 0;
        for (std::int64_t i = 0; i < width_; ++i)
            sum += term(i);
        return sum / static_cast<double>(width_);
    }

    double gradient(const LayerArgs& args, std::int64_t row, std::int64_t i) const {
        return real(this->reals(args.output_gradient)[row * width_ + i]);
    }
    double inverse(const LayerArgs& args, std::int64_t row) const { return real(this->reals(args.saved)[2 * row + 1]); }
    double normalised(const LayerArgs& args, std::int64_t row, std::int64_t i) const {
        const double mean = real(this->reals(args.saved)[2 * row]);
        return (real(this->reals(args.inputs[0])[row * width_ + i]) - mean) * inverse(args, row);
    }

    void add_weight_gradients(const LayerArgs& args) const {
        Real* weight_gradient = this->reals(args.weight_gradient);
        if (!args.accumulate)
            std::fill_n(args.weight_gradient, this->bytes_.weights, std::byte{});
        for (std::int64_t i = 0; i < width_; ++i) {
            double scale = 0, shift = 0;
            for (std::int64_t row = 0; row < rows_; ++row) {
                scale += gradient(args, row, i) * normalised(args, row, i);
                shift += gradient(args, row, i);
            }
            put(weight_gradient[i], scale, args.accumulate);
            put(weight_gradient[width_ + i], shift, args.accumulate);
        }
    }

    std::int64_t width_, rows_;
};

// GELU: x times the cumulative normal distribution at x.
template <class Real>
class Gelu : public PlainLayer<Real> {
public:
    Gelu(const Layer& layer, int samples) : PlainLayer<Real>(layer, samples) {}

    void forward(const LayerArgs& args, bool) override {
        const Real* x = this->reals(args.inputs[0]);
        for (std::int64_t i = 0; i < this->outputs_; ++i)
            this->reals(args.output)[i] = static_cast<Real>(real(x[i]) * below(real(x[i])));
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        const Real* x = this->reals(args.inputs[0]);
        const Real* dy = this->reals(args.output_gradient);
        for (std::int64_t i = 0; i < this->outputs_; ++i) {
            const double at = real(x[i]);
            this->reals(args.input_gradients[0])[i] = static_cast<Real>(real(dy[i]) * (below(at) + at * density(at)));
        }
    }

private:
    static double below(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }
    static double density(double x) { return std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2; }
};

}  // namespace

template <class Real>
std::unique_ptr<LayerKernel> make_embedding(const Layer& layer, int samples) {
    return std::make_unique<Embedding<Real>>(layer, samples);
}
template std::unique_ptr<LayerKernel> make_embedding<float>(const Layer&, int);
template std::unique_ptr<LayerKernel> make_embedding<double>(const Layer&, int);

template <class Real>
std::unique_ptr<LayerKernel> make_position_bias(const Layer& layer, int samples) {
    return std::make_unique<PositionBias<Real>>(layer, samples);
}
template std::unique_ptr<LayerKernel> make_position_bias<float>(const Layer&, int);
template std::unique_ptr<LayerKernel> make_position_bias<double>(const Layer&, int);

template <class Real>
std::unique_ptr<LayerKernel> make_layer_norm(const Layer& layer, int samples) {
    return std::make_unique<LayerNorm<Real>>(layer, samples);
}
template std::unique_ptr<LayerKernel> make_layer_norm<float>(const Layer&, int);
template std::unique_ptr<LayerKernel> make_layer_norm<double>(const Layer&, int);

template <class Real>
std::unique_ptr<LayerKernel> make_gelu(const Layer& layer, int samples) {
    return std::make_unique<Gelu<Real>>(layer, samples);
}
template std::unique_ptr<LayerKernel> make_gelu<float>(const Layer&, int);
template std::unique_ptr<LayerKernel> make_gelu<double>(const Layer&, int);

}  // namespace pw::reference
