#include "exec/reference/layers.h"

namespace pw::reference {

namespace {

template <class Real>
class Convolution : public PlainLayer<Real> {
public:
    Convolution(const Layer& layer, int samples) : PlainLayer<Real>(layer, samples) {
        weights_ = std::int64_t{layer.output.channels} * layer.input.channels * layer.kernel * layer.kernel;
        this->bytes_.weights = bytes_of<Real>(weights_);
        this->bytes_.scratch = bytes_of<double>(std::max(this->inputs_, weights_));  // sums of a backward pass
    }

    void forward(const LayerArgs& args, bool) override {
        const Real* x = this->reals(args.inputs[0]);
        const Real* w = this->reals(args.weights);
        Real* y = this->reals(args.output);
        const Dims& out = this->layer_.output;
        for (int n = 0; n < this->samples_; ++n)
            for (int o = 0; o < out.channels; ++o)
                for (int row = 0; row < out.height; ++row)
                    for (int column = 0; column < out.width; ++column) {
                        double sum = 0;
                        for_taps(n, o, row, column, [&](std::int64_t source, std::int64_t weight) {
                            sum += static_cast<double>(x[source]) * static_cast<double>(w[weight]);
                        });
                        y[output_index(n, o, row, column)] = static_cast<Real>(sum);
                    }
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        const Real* w = this->reals(args.weights);
        auto* dx = reinterpret_cast<double*>(args.scratch);
        std::fill_n(dx, this->inputs_, 0.0);
        for_outputs(this->reals(args.output_gradient), [&](double dy, std::int64_t source, std::int64_t weight) {
            dx[source] += dy * static_cast<double>(w[weight]);
        });
        for (std::int64_t i = 0; i < this->inputs_; ++i)
            put(this->reals(args.input_gradients[0])[i], dx[i], false);
    }

    void backward_weight(const LayerArgs& args) override {
        const Real* x = this->reals(args.inputs[0]);
        auto* dw = reinterpret_cast<double*>(args.scratch);
        std::fill_n(dw, weights_, 0.0);
        for_outputs(this->reals(args.output_gradient), [&](double dy, std::int64_t source, std::int64_t weight) {
            dw[weight] += dy * static_cast<double>(x[source]);
        });
        if (!args.accumulate)
            std::fill_n(args.weight_gradient, this->bytes_.weights, std::byte{});
        for (std::int64_t i = 0; i < weights_; ++i)
            put(this->reals(args.weight_gradient)[i], dw[i], args.accumulate);
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        std::fill_n(weights, this->bytes_.weights, std::byte{});
        this->fill(values[0], weights);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        return {this->read(weights, weights_)};
    }

private:
    std::int64_t output_index(int n, int o, int row, int column) const {
        const Dims& out = this->layer_.output;
        return ((std::int64_t{n} * out.channels + o) * out.height + row) * out.width + column;
    }

    // Calls visit for every input element and weight of each output element.
    template <class Visit>
    void for_taps(int n, int o, int row, int column, Visit visit) const {
        const Layer& layer = this->layer_;
        const Dims& in = layer.input;
        for (int i = 0; i < in.channels; ++i)
            for (int ky = 0; ky < layer.kernel; ++ky)
                for (int kx = 0; kx < layer.kernel; ++kx) {
                    const int y = row * layer.stride - layer.padding + ky;
                    const int x = column * layer.stride - layer.padding + kx;
                    if (y < 0 || y >= in.height || x < 0 || x >= in.width)
                        continue;
                    visit(((std::int64_t{n} * in.channels + i) * in.height + y) * in.width + x,
                          ((std::int64_t{o} * in.channels + i) * layer.kernel + ky) * layer.kernel + kx);
                }
    }

    template <class Visit>
    void for_outputs(const Real* output_gradient, Visit visit) const {
        const Dims& out = this->layer_.output;
        for (int n = 0; n < this->samples_; ++n)
            for (int o = 0; o < out.channels; ++o)
                for (int row = 0; row < out.height; ++row)
                    for (int column = 0; column < out.width; ++column) {
                        const auto dy = static_cast<double>(output_gradient[output_index(n, o, row, column)]);
                        for_taps(n, o, row, column,
                                 [&](std::int64_t source, std::int64_t weight) { visit(dy, source, weight); });
                    }
    }

    std::int64_t weights_;
};

}  // namespace

template <class Real>
std::unique_ptr<LayerKernel> make_convolution(const Layer& layer, int samples) {
    return std::make_unique<Convolution<Real>>(layer, samples);
}
template std::unique_ptr<LayerKernel> make_convolution<float>(const Layer&, int);
template std::unique_ptr<LayerKernel> make_convolution<double>(const Layer&, int);

}  // namespace pw::reference
