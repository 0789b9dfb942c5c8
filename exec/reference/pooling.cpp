#include "exec/reference/layers.h"

#include <cmath>

namespace pw::reference {

namespace {

// saved: for every output element the position of the maximum in its input plane, the first one if there are
// several. NaN counts as a maximum.
template <class Real>
class MaxPool : public PlainLayer<Real> {
public:
    MaxPool(const Layer& layer, int samples) : PlainLayer<Real>(layer, samples) {
        this->bytes_.saved_until_input = bytes_of<std::int32_t>(this->outputs_);
    }

    void forward(const LayerArgs& args, bool save) override {
        const Real* x = this->reals(args.inputs[0]);
        Real* y = this->reals(args.output);
        auto* chosen = reinterpret_cast<std::int32_t*>(args.saved);
        for_outputs([&](std::int64_t plane, int row, int column, std::int64_t output) {
            const Real* source = x + plane * input_plane();
            const std::int32_t best = first_maximum(source, row, column);
            y[output] = source[best];
            if (save)
                chosen[output] = best;
        });
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        Real* dx = this->reals(args.input_gradients[0]);
        const Real* dy = this->reals(args.output_gradient);
        const auto* chosen = reinterpret_cast<const std::int32_t*>(args.saved);
        std::fill_n(dx, this->inputs_, Real{0});
        for_outputs([&](std::int64_t plane, int, int, std::int64_t output) {
            dx[plane * input_plane() + chosen[output]] += dy[output];
        });
    }

private:
    std::int64_t input_plane() const { return std::int64_t{this->layer_.input.height} * this->layer_.input.width; }

    template <class Visit>
    void for_outputs(Visit visit) const {
        const Dims& out = this->layer_.output;
        std::int64_t output = 0;
        for (std::int64_t plane = 0; plane < std::int64_t{this->samples_} * out.channels; ++plane)
            for (int row = 0; row < out.height; ++row)
                for (int column = 0; column < out.width; ++column)
                    visit(plane, row, column, output++);
    }

    std::int32_t first_maximum(const Real* source, int row, int column) const {
        const Layer& layer = this->layer_;
        std::int32_t best = -1;
        for (int ky = 0; ky < layer.kernel; ++ky)
            for (int kx = 0; kx < layer.kernel; ++kx) {
                const int y = row * layer.stride - layer.padding + ky;
                const int x = column * layer.stride - layer.padding + kx;
                if (y < 0 || y >= layer.input.height || x < 0 || x >= layer.input.width)
                    continue;
                const std::int32_t here = y * layer.input.width + x;
                if (best < 0 || source[here] > source[best] || std::isnan(source[here]))
                    best = here;
            }
        return best;
    }
};

template <class Real>
class AveragePool : public PlainLayer<Real> {
public:
    AveragePool(const Layer& layer, int samples)
        : PlainLayer<Real>(layer, samples), pixels_(std::int64_t{layer.input.height} * layer.input.width) {}

    void forward(const LayerArgs& args, bool) override {
        const Real* x = this->reals(args.inputs[0]);
        Real* y = this->reals(args.output);
        for (std::int64_t plane = 0; plane < this->outputs_; ++plane) {
            double sum = 0;
            for (std::int64_t p = 0; p < pixels_; ++p)
                sum += static_cast<double>(x[plane * pixels_ + p]);
            y[plane] = static_cast<Real>(sum / static_cast<double>(pixels_));
        }
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        const Real* dy = this->reals(args.output_gradient);
        Real* dx = this->reals(args.input_gradients[0]);
        for (std::int64_t plane = 0; plane < this->outputs_; ++plane)
            std::fill_n(dx + plane * pixels_, pixels_, dy[plane] / static_cast<Real>(pixels_));
    }

private:
    std::int64_t pixels_;
};

// Upsampling by the nearest neighbour.
template <class Real>
class Upsample : public PlainLayer<Real> {
public:
    Upsample(const Layer& layer, int samples) : PlainLayer<Real>(layer, samples) {}

    void forward(const LayerArgs& args, bool) override {
        const Real* x = this->reals(args.inputs[0]);
        Real* y = this->reals(args.output);
        for_pairs([&](std::int64_t input, std::int64_t output) { y[output] = x[input]; });
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        const Real* dy = this->reals(args.output_gradient);
        Real* dx = this->reals(args.input_gradients[0]);
        std::fill_n(dx, this->inputs_, Real{0});
        for_pairs([&](std::int64_t input, std::int64_t output) { dx[input] += dy[output]; });
    }

private:
    // Calls visit for every output element in order, with the input element that it repeats.
    template <class Visit>
    void for_pairs(Visit visit) const {
        const Dims &in = this->layer_.input, &out = this->layer_.output;
        std::int64_t output = 0;
        for (std::int64_t plane = 0; plane < std::int64_t{this->samples_} * out.channels; ++plane)
            for (int row = 0; row < out.height; ++row)
                for (int column = 0; column < out.width; ++column) {
                    const int y = row / this->layer_.stride, x = column / this->layer_.stride;
                    visit((plane * in.height + y) * in.width + x, output++);
                }
    }
};

}  // namespace

extern const LayerRow kMaxPool = row_of<MaxPool>(LayerKind::MaxPool);
extern const LayerRow kAveragePool = row_of<AveragePool>(LayerKind::AveragePool);
extern const LayerRow kUpsample = row_of<Upsample>(LayerKind::Upsample);

}  // namespace pw::reference
