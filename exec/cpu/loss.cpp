// The losses. A thread takes one sample at a time, so that every sum has the same order for any number of threads.
// There are usually a few thousand values, hence plain loops in double. A slice has its part of the mean over the
// sequence.
#include "exec/cpu/layers.h"
#include "exec/cpu/parallel.h"

#include <cmath>

namespace pw::cpu {

namespace {

// saved: the gradient of the sum over the positions. scratch: a loss per sample, then room for its classes.
class Loss : public CpuLayer {
public:
    Loss(const Layer& layer, int samples, std::int64_t per_block)
        : CpuLayer(layer, samples, per_block), shape_(loss_shape(layer)), elements_(layer.input.elements()) {
        layer_.output = {};  // it has no output tensor
        bytes_.output = 0;
        bytes_.saved_until_input = tensor_bytes(layer.input, samples);
        bytes_.scratch = aligned(samples * (1 + shape_.classes) * static_cast<Bytes>(sizeof(double)));
        place_classes();
    }

    void forward(const LayerArgs& args, bool save) override {
        auto* losses = reinterpret_cast<double*>(args.scratch);
        in_shares(samples_, [&](std::int64_t first, std::int64_t count) {
            for (std::int64_t n = first; n < first + count; ++n)
                losses[n] = of_sample(args, n, save, losses + samples_ + n * shape_.classes);
        });
        double loss = 0;
        for (int n = 0; n < samples_; ++n)
            loss += losses[n];
        if (args.loss)
            *args.loss = loss;
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        const double scale = args.loss_scale / divisor();
        const float* saved = floats(static_cast<const std::byte*>(args.saved));
        float* dx = floats(args.input_gradients[0]);
        in_shares(samples_ * elements_, [&](std::int64_t first, std::int64_t count) {
            for (std::int64_t i = first; i < first + count; ++i)
                dx[i] = static_cast<float>(static_cast<double>(saved[i]) * scale);
        });
    }

protected:
    // Returns the position's part of the loss, before the mean, and writes its gradient to `saved` unless that is null.
    virtual double at_position(const float* values, int label, float* saved, double* room) const = 0;
    virtual double divisor() const = 0;  // of the mean over a sample

    LossShape shape_;
    std::vector<std::int64_t> place_;  // by class: the offset from its position's first value

private:
    // In a blocked tensor the channels of a block are adjacent.
    void place_classes() {
        const bool blocked = is_blocked(layer_.input, per_block_);
        for (std::int64_t c = 0; c < shape_.classes; ++c)
            place_.push_back(blocked ? c / per_block_ * per_block_ * shape_.positions + c % per_block_
                                     : c * shape_.class_stride);
        step_ = blocked ? per_block_ : shape_.position_stride;
    }

    double of_sample(const LayerArgs& args, std::int64_t n, bool save, double* room) const {
        double loss = 0;
        for (std::int64_t p = 0; p < shape_.positions; ++p) {
            const std::int64_t first = n * elements_ + p * step_;
            loss += at_position(floats(args.inputs[0]) + first,
                                args.labels[static_cast<std::size_t>(n * shape_.positions + p)],
                                save ? floats(args.saved) + first : nullptr, room);
        }
        return loss / divisor();
    }

    std::int64_t elements_, step_ = 1;
};

class CrossEntropy : public Loss {
public:
    using Loss::Loss;

private:
    double at_position(const float* logits, int label, float* saved, double* powers) const override {
        double largest = static_cast<double>(logits[place_[0]]);
        for (const std::int64_t place : place_)
            largest = std::max(largest, static_cast<double>(logits[place]));
        double sum = 0;
        for (std::size_t c = 0; c < place_.size(); ++c) {
            powers[c] = std::exp(static_cast<double>(logits[place_[c]]) - largest);
            sum += powers[c];
        }
        const auto right = static_cast<std::size_t>(label);
        for (std::size_t c = 0; saved != nullptr && c < place_.size(); ++c)
            saved[place_[c]] = static_cast<float>(powers[c] / sum - (c == right ? 1 : 0));
        return std::log(sum) - (static_cast<double>(logits[place_[right]]) - largest);
    }

    double divisor() const override { return static_cast<double>(shape_.positions * layer_.slices); }
};

class MeanSquaredError : public Loss {
public:
    using Loss::Loss;

private:
    double at_position(const float* values, int label, float* saved, double*) const override {
        const auto right = static_cast<std::size_t>(label);
        double sum = 0;
        for (std::size_t c = 0; c < place_.size(); ++c) {
            const double difference = static_cast<double>(values[place_[c]]) - (c == right ? 1 : 0);
            sum += difference * difference;
            if (saved != nullptr)
                saved[place_[c]] = static_cast<float>(2 * difference);
        }
        return sum;
    }

    double divisor() const override { return static_cast<double>(shape_.classes * shape_.positions * layer_.slices); }
};

}  // namespace

std::unique_ptr<LayerKernel> make_cross_entropy(const Layer& layer, int samples, std::int64_t per_block) {
    return std::make_unique<CrossEntropy>(layer, samples, per_block);
}

std::unique_ptr<LayerKernel> make_mean_squared_error(const Layer& layer, int samples, std::int64_t per_block) {
    return std::make_unique<MeanSquaredError>(layer, samples, per_block);
}

extern const LayerRow kCrossEntropy = row_of_blocks<make_cross_entropy>(LayerKind::CrossEntropy);
extern const LayerRow kMeanSquaredError = row_of_blocks<make_mean_squared_error>(LayerKind::MeanSquaredError);

}  // namespace pw::cpu
