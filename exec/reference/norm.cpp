#include "exec/reference/layers.h"
#include "exec/reference/running_averages.h"

#include <cmath>

namespace pw::reference {

namespace {

// weights: scale, shift. statistics: mean, unbiased variance (running_averages.h). saved: mean and 1 / deviation of
// every channel, then with a fused ReLU a byte per element: whether it passed.
template <class Real>
class BatchNorm : public PlainLayer<Real> {
public:
    BatchNorm(const Layer& layer, int samples)
        : PlainLayer<Real>(layer, samples),
          channels_(layer.input.channels),
          pixels_(std::int64_t{layer.input.height} * layer.input.width),
          per_channel_(samples * pixels_),
          mask_offset_(bytes_of<Real>(2 * channels_)) {
        this->bytes_.weights = bytes_of<Real>(2 * channels_);
        this->bytes_.statistics = bytes_of<Real>(2 * channels_);
        this->bytes_.saved_until_input = mask_offset_ + (layer.relu ? aligned(this->inputs_) : 0);
    }

    void forward(const LayerArgs& args, bool save) override {
        const Real* x = this->reals(args.inputs[0]);
        const Real* weights = this->reals(args.weights);
        Real* y = this->reals(args.output);
        const bool saves = save && args.saved != nullptr;
        for (std::int64_t c = 0; c < channels_; ++c) {
            const Moments moments = save ? moments_of(x, c) : running_moments(args, c);
            const double inverse = 1 / std::sqrt(moments.variance + kNormEpsilon);
            const double scale = real(weights[c]), shift = real(weights[channels_ + c]);
            for_channel(c, [&](std::int64_t i) {
                const double value = (real(x[i]) - moments.mean) * inverse * scale + shift;
                y[i] = static_cast<Real>(this->layer_.relu && value <= 0 ? 0 : value);
                if (saves && this->layer_.relu)
                    args.saved[mask_offset_ + i] = std::byte{!(value <= 0)};
            });
            if (saves) {
                this->reals(args.saved)[c] = static_cast<Real>(moments.mean);
                this->reals(args.saved)[channels_ + c] = static_cast<Real>(inverse);
            }
            if (save && args.statistics)
                write_statistics(this->reals(args.statistics), c, moments);
        }
    }

    void gather_statistics(const BatchStatistics& of, std::byte* running) override {
        average_batches(of, channels_, pixels_, this->reals(running));
    }

    void backward_input(const LayerArgs& args) override {
        const Real* x = this->reals(args.inputs[0]);
        const Real* saved = this->reals(static_cast<const std::byte*>(args.saved));
        if (args.weight_gradient && !args.accumulate)
            std::fill_n(args.weight_gradient, this->bytes_.weights, std::byte{});
        for (std::int64_t c = 0; c < channels_; ++c) {
            const double mean = real(saved[c]), inverse = real(saved[channels_ + c]);
            const auto normal = [&](std::int64_t i) { return (real(x[i]) - mean) * inverse; };
            const auto dy = [&](std::int64_t i) { return passed_gradient(args, i); };
            const double shift_gradient = sum_over(c, dy);
            const double scale_gradient = sum_over(c, [&](std::int64_t i) { return dy(i) * normal(i); });
            if (args.weight_gradient) {
                Real* gradient = this->reals(args.weight_gradient);
                put(gradient[c], scale_gradient, args.accumulate);
                put(gradient[channels_ + c], shift_gradient, args.accumulate);
            }
            if (!args.input_gradients[0])
                continue;
            Real* dx = this->reals(args.input_gradients[0]);
            const double factor = real(this->reals(args.weights)[c]) * inverse;
            for_channel(c, [&](std::int64_t i) {
                dx[i] = static_cast<Real>(factor * (dy(i) - (shift_gradient + normal(i) * scale_gradient) / count()));
            });
        }
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte* statistics) override {
        std::fill_n(weights, this->bytes_.weights, std::byte{});
        std::fill_n(statistics, this->bytes_.statistics, std::byte{});
        std::ranges::copy(values[0], this->reals(weights));
        std::ranges::copy(values[1], this->reals(weights) + channels_);
        std::ranges::copy(values[2], this->reals(statistics));
        std::ranges::copy(values[3], this->reals(statistics) + channels_);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte* statistics) const override {
        const auto second = channels_ * static_cast<std::int64_t>(sizeof(Real));
        return {this->read(weights, channels_), this->read(weights + second, channels_),
                this->read(statistics, channels_), this->read(statistics + second, channels_)};
    }

private:
    static double real(Real value) { return static_cast<double>(value); }
    static double square(double value) { return value * value; }
    double count() const { return static_cast<double>(per_channel_); }

    template <class Visit>
    void for_channel(std::int64_t c, Visit visit) const {
        for (std::int64_t n = 0; n < this->samples_; ++n)
            for (std::int64_t p = 0; p < pixels_; ++p)
                visit((n * channels_ + c) * pixels_ + p);
    }

    template <class Term>
    double sum_over(std::int64_t c, Term term) const {
        double sum = 0;
        for_channel(c, [&](std::int64_t i) { sum += term(i); });
        return sum;
    }

    double passed_gradient(const LayerArgs& args, std::int64_t i) const {
        const bool passed = !this->layer_.relu || args.saved[mask_offset_ + i] != std::byte{};
        return passed ? real(this->reals(args.output_gradient)[i]) : 0;
    }

    struct Moments {
        double mean, variance;
    };

    Moments moments_of(const Real* x, std::int64_t c) const {
        const double mean = sum_over(c, [&](std::int64_t i) { return real(x[i]); }) / count();
        return {mean, sum_over(c, [&](std::int64_t i) { return square(real(x[i]) - mean); }) / count()};
    }

    Moments running_moments(const LayerArgs& args, std::int64_t c) const {
        const Real* running = this->reals(static_cast<const std::byte*>(args.statistics));
        return {real(running[c]), real(running[channels_ + c])};
    }

    void write_statistics(Real* statistics, std::int64_t c, const Moments& moments) const {
        const double unbiased = per_channel_ > 1 ? moments.variance * count() / (count() - 1) : moments.variance;
        statistics[c] = static_cast<Real>(moments.mean);
        statistics[channels_ + c] = static_cast<Real>(unbiased);
    }

    std::int64_t channels_, pixels_, per_channel_;
    Bytes mask_offset_;
};

}  // namespace

extern const LayerRow kBatchNorm = row_of<BatchNorm>(LayerKind::BatchNorm);

}  // namespace pw::reference
