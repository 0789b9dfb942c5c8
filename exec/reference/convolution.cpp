#include "exec/reference/layers.h"

namespace pw::reference {

namespace {

template <class Real>
class Convolution : public PlainLayer<Real> {
public:
    Convolution(const Layer& layer, int samples)
        : PlainLayer<Real>(layer, samples), sums_(static_cast<std::size_t>(layer.output.width)) {
        weights_ = std::int64_t{layer.output.channels} * layer.input.channels * layer.kernel * layer.kernel;
        this->bytes_.weights = bytes_of<Real>(weights_);
        this->bytes_.scratch = bytes_of<double>(std::max(this->inputs_, weights_));  // sums of a backward pass
    }

    void forward(const LayerArgs& args, bool) override {
        const Real* x = this->reals(args.inputs[0]);
        const Real* w = this->reals(args.weights);
        Real* y = this->reals(args.output);
        for_rows([&](int n, int o, int row) {
            std::ranges::fill(sums_, 0.0);
            for_taps<Order::Forward>(n, o, row, [&](const Taps& taps) {
                const auto weight = static_cast<double>(w[taps.weight]);
                for (int k = 0; k < taps.count; ++k)
                    sums_[taps.column + k] += static_cast<double>(x[source_of(taps, k)]) * weight;
            });
            std::ranges::transform(sums_, y + output_index(n, o, row),
                                   [](double sum) { return static_cast<Real>(sum); });
        });
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        const Real* w = this->reals(args.weights);
        const Real* dy = this->reals(args.output_gradient);
        auto* dx = reinterpret_cast<double*>(args.scratch);
        std::fill_n(dx, this->inputs_, 0.0);
        for_rows([&](int n, int o, int row) {
            for_taps<Order::Backward>(n, o, row, [&](const Taps& taps) {
                const auto weight = static_cast<double>(w[taps.weight]);
                for (int k = 0; k < taps.count; ++k)
                    dx[source_of(taps, k)] +=
                        static_cast<double>(dy[output_index(n, o, row) + taps.column + k]) * weight;
            });
        });
        for (std::int64_t i = 0; i < this->inputs_; ++i)
            put(this->reals(args.input_gradients[0])[i], dx[i], false);
    }

    void backward_weight(const LayerArgs& args) override {
        const Real* x = this->reals(args.inputs[0]);
        const Real* dy = this->reals(args.output_gradient);
        auto* dw = reinterpret_cast<double*>(args.scratch);
        std::fill_n(dw, weights_, 0.0);
        for_rows([&](int n, int o, int row) {
            for_taps<Order::Forward>(n, o, row, [&](const Taps& taps) {
                double sum = dw[taps.weight];
                for (int k = 0; k < taps.count; ++k)
                    sum += static_cast<double>(dy[output_index(n, o, row) + taps.column + k]) *
                           static_cast<double>(x[source_of(taps, k)]);
                dw[taps.weight] = sum;
            });
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
    // The outputs of a row that meet one weight, `count` from `column` on, and the input that the first of them meets.
    struct Taps {
        std::int64_t weight, source;
        int column, count;
    };
    // The order of the weights of a row of the kernel. Backward: the first output that meets an input comes first.
    enum class Order { Forward, Backward };

    std::int64_t source_of(const Taps& taps, int k) const {
        return taps.source + std::int64_t{k} * this->layer_.stride;
    }

    std::int64_t output_index(int n, int o, int row) const {
        const Dims& out = this->layer_.output;
        return ((std::int64_t{n} * out.channels + o) * out.height + row) * out.width;
    }

    // Calls visit(sample, channel, row) for every row of the output.
    template <class Visit>
    void for_rows(Visit visit) const {
        const Dims& out = this->layer_.output;
        for (int n = 0; n < this->samples_; ++n)
            for (int o = 0; o < out.channels; ++o)
                for (int row = 0; row < out.height; ++row)
                    visit(n, o, row);
    }

    // Calls visit(Taps) for every weight that a row of the output meets.
    template <Order order, class Visit>
    void for_taps(int n, int o, int row, Visit visit) const {
        const Layer& layer = this->layer_;
        const Dims& in = layer.input;
        for (int i = 0; i < in.channels; ++i)
            for (int ky = 0; ky < layer.kernel; ++ky) {
                const int y = row * layer.stride - layer.padding + ky;
                if (y < 0 || y >= in.height)
                    continue;
                for (int number = 0; number < layer.kernel; ++number) {
                    const int kx = order == Order::Forward ? number : layer.kernel - 1 - number;
                    const int before = layer.padding - kx, after = in.width - 1 + before;  // last column * stride
                    if (after < 0)
                        continue;
                    const int column = before > 0 ? (before + layer.stride - 1) / layer.stride : 0;
                    const int end = std::min(layer.output.width, after / layer.stride + 1);
                    if (column < end)
                        visit(Taps{((std::int64_t{o} * in.channels + i) * layer.kernel + ky) * layer.kernel + kx,
                                   ((std::int64_t{n} * in.channels + i) * in.height + y) * in.width +
                                       column * layer.stride - before,
                                   column, end - column});
                }
            }
    }

    std::int64_t weights_;
    std::vector<double> sums_;  // of a row of the output
};

}  // namespace

extern const LayerRow kConvolution = row_of<Convolution>(LayerKind::Convolution);

}  // namespace pw::reference
