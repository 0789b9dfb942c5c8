// Layers on rows of tokens: all except the products and attention.
#include "exec/reference/layers.h"
#include "exec/training/rotary_angle.h"
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

// weights: a vector per position of the whole sequence.
template <class Real>
class PositionBias : public PlainLayer<Real> {
public:
    PositionBias(const Layer& layer, int samples)
        : PlainLayer<Real>(layer, samples), values_(layer.input.elements()), all_values_(values_ * layer.slices) {
        this->bytes_.weights = bytes_of<Real>(all_values_);
    }

    void forward(const LayerArgs& args, bool) override {
        const Real* x = this->reals(args.inputs[0]);
        const Real* bias = this->reals(args.weights) + args.slice * values_;
        for (std::int64_t i = 0; i < this->inputs_; ++i)
            this->reals(args.output)[i] = x[i] + bias[i % values_];
    }

    void backward_input(const LayerArgs& args) override {
        const Real* dy = this->reals(args.output_gradient);
        if (args.weight_gradient)
            add_weight_gradients(args, dy);
        if (args.input_gradients[0])
            std::copy_n(dy, this->inputs_, this->reals(args.input_gradients[0]));
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        std::fill_n(weights, this->bytes_.weights, std::byte{});
        this->fill(values[0], weights);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        return {this->read(weights, all_values_)};
    }

private:
    void add_weight_gradients(const LayerArgs& args, const Real* dy) const {
        Real* gradient = this->reals(args.weight_gradient) + args.slice * values_;
        if (!args.accumulate)
            std::fill_n(args.weight_gradient, this->bytes_.weights, std::byte{});
        for (std::int64_t i = 0; i < values_; ++i) {
            double sum = 0;
            for (std::int64_t n = 0; n < this->samples_; ++n)
                sum += real(dy[n * values_ + i]);
            put(gradient[i], sum, args.accumulate);
        }
    }

    std::int64_t values_, all_values_;  // of a slice and of all
};

// Layer norm and RMS norm. weights: scale, and the layer norm's shift. saved: of every row the layer norm's mean, and 1
// / deviation. The RMS norm has neither mean nor shift.
template <class Real>
class RowNorm : public PlainLayer<Real> {
public:
    RowNorm(const Layer& layer, int samples)
        : PlainLayer<Real>(layer, samples),
          centred_(layer.kind == LayerKind::LayerNorm),
          vectors_(centred_ ? 2 : 1),
          width_(layer.input.width),
          rows_(std::int64_t{samples} * layer.input.height) {
        this->bytes_.weights = bytes_of<Real>(vectors_ * width_);
        this->bytes_.saved_until_input = bytes_of<Real>(vectors_ * rows_);
    }

    void forward(const LayerArgs& args, bool save) override {
        const Real* scale = this->reals(args.weights);
        const auto shift = [&](std::int64_t i) { return centred_ ? real(scale[width_ + i]) : 0; };
        for (std::int64_t row = 0; row < rows_; ++row) {
            const Real* x = this->reals(args.inputs[0]) + row * width_;
            Real* y = this->reals(args.output) + row * width_;
            const double mean = centred_ ? mean_over([&](std::int64_t i) { return real(x[i]); }) : 0;
            const double variance = mean_over([&](std::int64_t i) { return square(real(x[i]) - mean); });
            const double inverse = 1 / std::sqrt(variance + kNormEpsilon);
            for (std::int64_t i = 0; i < width_; ++i)
                y[i] = static_cast<Real>((real(x[i]) - mean) * inverse * real(scale[i]) + shift(i));
            if (!save)
                continue;
            Real* saved = this->reals(args.saved) + vectors_ * row;
            if (centred_)
                saved[0] = static_cast<Real>(mean);
            saved[vectors_ - 1] = static_cast<Real>(inverse);
        }
    }

    void backward_input(const LayerArgs& args) override {
        if (args.weight_gradient)
            add_weight_gradients(args);
        if (!args.input_gradients[0])
            return;
        const Real* scale = this->reals(args.weights);
        for (std::int64_t row = 0; row < rows_; ++row) {
            const auto slope = [&](std::int64_t i) { return gradient(args, row, i) * real(scale[i]); };
            const auto normal = [&](std::int64_t i) { return normalised(args, row, i); };
            const double level = centred_ ? mean_over(slope) : 0;
            const double tilt = mean_over([&](std::int64_t i) { return slope(i) * normal(i); });
            for (std::int64_t i = 0; i < width_; ++i)
                this->reals(args.input_gradients[0])[row * width_ + i] =
                    static_cast<Real>(inverse(args, row) * (slope(i) - level - normal(i) * tilt));
        }
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        std::fill_n(weights, this->bytes_.weights, std::byte{});
        for (std::int64_t k = 0; k < vectors_; ++k)
            std::ranges::copy(values[k], this->reals(weights) + k * width_);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        std::vector<std::vector<float>> values;
        for (std::int64_t k = 0; k < vectors_; ++k)
            values.push_back(this->read(weights + k * width_ * static_cast<std::int64_t>(sizeof(Real)), width_));
        return values;
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
    double inverse(const LayerArgs& args, std::int64_t row) const {
        return real(this->reals(args.saved)[vectors_ * row + vectors_ - 1]);
    }
    double normalised(const LayerArgs& args, std::int64_t row, std::int64_t i) const {
        const double mean = centred_ ? real(this->reals(args.saved)[vectors_ * row]) : 0;
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
            if (centred_)
                put(weight_gradient[width_ + i], shift, args.accumulate);
        }
    }

    bool centred_;
    std::int64_t vectors_;  // in the weights, numbers saved per row
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

// SiLU of the first input, x / (1 + e^-x), times the second.
template <class Real>
class GatedSilu : public PlainLayer<Real> {
public:
    GatedSilu(const Layer& layer, int samples) : PlainLayer<Real>(layer, samples) {}

    void forward(const LayerArgs& args, bool) override {
        for (std::int64_t i = 0; i < this->outputs_; ++i) {
            const double x = at(args.inputs[0], i);
            this->reals(args.output)[i] = static_cast<Real>(x * sigmoid(x) * at(args.inputs[1], i));
        }
    }

    void backward_input(const LayerArgs& args) override {
        for (std::int64_t i = 0; i < this->outputs_; ++i) {
            const double x = at(args.inputs[0], i), dy = at(args.output_gradient, i);
            const double slope = sigmoid(x) * (1 + x * sigmoid(-x));
            if (args.input_gradients[0])
                this->reals(args.input_gradients[0])[i] = static_cast<Real>(dy * at(args.inputs[1], i) * slope);
            if (args.input_gradients[1])
                this->reals(args.input_gradients[1])[i] = static_cast<Real>(dy * x * sigmoid(x));
        }
    }

private:
    double at(const std::byte* tensor, std::int64_t i) const { return real(this->reals(tensor)[i]); }
    static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
};

// Turns value i of every head, and the one half a head further, by the angle of the row and i.
template <class Real>
class Rotary : public PlainLayer<Real> {
public:
    Rotary(const Layer& layer, int samples)
        : PlainLayer<Real>(layer, samples), half_(layer.input.width / layer.heads / 2) {}

    void forward(const LayerArgs& args, bool) override {
        turn(args.slice, this->reals(args.inputs[0]), 1, this->reals(args.output));
    }

    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0])
            turn(args.slice, this->reals(args.output_gradient), -1, this->reals(args.input_gradients[0]));
    }

private:
    void turn(int slice, const Real* from, double direction, Real* to) const {
        const std::int64_t length = this->layer_.input.height, heads = this->layer_.heads;
        for (std::int64_t head = 0; head < this->samples_ * length * heads; ++head, from += 2 * half_, to += 2 * half_)
            for (std::int64_t i = 0; i < half_; ++i) {
                const double angle = direction * rotary_angle(this->layer_.rotary_base, half_,
                                                              slice * length + head / heads % length, i);
                const double first = real(from[i]), second = real(from[half_ + i]);
                to[i] = static_cast<Real>(first * std::cos(angle) - second * std::sin(angle));
                to[half_ + i] = static_cast<Real>(second * std::cos(angle) + first * std::sin(angle));
            }
    }

    std::int64_t half_;  // of a head
};

}  // namespace

extern const LayerRow kEmbedding = row_of<Embedding>(LayerKind::Embedding);
extern const LayerRow kPositionBias = row_of<PositionBias>(LayerKind::PositionBias);
extern const LayerRow kLayerNorm = row_of<RowNorm>(LayerKind::LayerNorm);
extern const LayerRow kRmsNorm = row_of<RowNorm>(LayerKind::RmsNorm);
extern const LayerRow kGelu = row_of<Gelu>(LayerKind::Gelu);
extern const LayerRow kGatedSilu = row_of<GatedSilu>(LayerKind::GatedSilu);
extern const LayerRow kRotary = row_of<Rotary>(LayerKind::Rotary);

}  // namespace pw::reference
