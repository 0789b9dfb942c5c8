// The losses: the mean over a sample's positions, summed over the samples. A slice has its part of that mean.
#include "exec/reference/layers.h"

#include <cmath>

namespace pw::reference {

namespace {

// saved: the gradient of the sum over the positions.
template <class Real>
class Loss : public PlainLayer<Real> {
public:
    Loss(const Layer& layer, int samples) : PlainLayer<Real>(layer, samples), shape_(loss_shape(layer)) {
        this->bytes_.saved_until_input = bytes_of<Real>(this->inputs_);
    }

    void forward(const LayerArgs& args, bool save) override {
        const std::int64_t elements = shape_.classes * shape_.positions;
        double loss = 0;
        for (int n = 0; n < this->samples_; ++n) {
            double of_sample = 0;
            for (std::int64_t p = 0; p < shape_.positions; ++p) {
                const std::int64_t first = n * elements + p * shape_.position_stride;
                Real* saved = save ? this->reals(args.saved) + first : nullptr;
                of_sample += at_position(this->reals(args.inputs[0]) + first,
                                         args.labels[static_cast<std::size_t>(n * shape_.positions + p)], saved);
            }
            loss += of_sample / divisor();
        }
        if (args.loss)
            *args.loss = loss;
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        const Real* saved = this->reals(static_cast<const std::byte*>(args.saved));
        Real* dx = this->reals(args.input_gradients[0]);
        const double scale = args.loss_scale / divisor();
        for (std::int64_t i = 0; i < this->inputs_; ++i)
            dx[i] = static_cast<Real>(static_cast<double>(saved[i]) * scale);
    }

protected:
    // Returns the position's part of the loss, before the mean, and writes its gradient to `saved` unless that is null.
    virtual double at_position(const Real* values, int label, Real* saved) const = 0;
    virtual double divisor() const = 0;  // of the mean over a sample

    const LossShape shape_;
};

template <class Real>
class CrossEntropy : public Loss<Real> {
public:
    using Loss<Real>::Loss;

private:
    double at_position(const Real* logits, int label, Real* saved) const override {
        const std::int64_t classes = this->shape_.classes, stride = this->shape_.class_stride;
        const auto logit = [&](std::int64_t c) { return static_cast<double>(logits[c * stride]); };
        double largest = logit(0);
        for (std::int64_t c = 1; c < classes; ++c)
            largest = std::max(largest, logit(c));
        double sum = 0;
        for (std::int64_t c = 0; c < classes; ++c)
            sum += std::exp(logit(c) - largest);
        for (std::int64_t c = 0; saved != nullptr && c < classes; ++c)
            saved[c * stride] = static_cast<Real>(std::exp(logit(c) - largest) / sum - (c == label ? 1 : 0));
        return std::log(sum) - (logit(label) - largest);
    }

    double divisor() const override { return static_cast<double>(this->shape_.positions * this->layer_.slices); }
};

template <class Real>
class MeanSquaredError : public Loss<Real> {
public:
    using Loss<Real>::Loss;

private:
    double at_position(const Real* values, int label, Real* saved) const override {
        double sum = 0;
        for (std::int64_t c = 0; c < this->shape_.classes; ++c) {
            const std::int64_t place = c * this->shape_.class_stride;
            const double difference = static_cast<double>(values[place]) - (c == label ? 1 : 0);
            sum += difference * difference;
            if (saved != nullptr)
                saved[place] = static_cast<Real>(2 * difference);
        }
        return sum;
    }

    double divisor() const override {
        return static_cast<double>(this->shape_.classes * this->shape_.positions * this->layer_.slices);
    }
};

}  // namespace

extern const LayerRow kCrossEntropy = row_of<CrossEntropy>(LayerKind::CrossEntropy);
extern const LayerRow kMeanSquaredError = row_of<MeanSquaredError>(LayerKind::MeanSquaredError);

}  // namespace pw::reference
