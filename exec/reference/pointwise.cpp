#include "exec/reference/layers.h"

namespace pw::reference {

namespace {

template <class Real>
class Relu : public PlainLayer<Real> {
public:
    Relu(const Layer& layer, int samples) : PlainLayer<Real>(layer, samples) {}

    void forward(const LayerArgs& args, bool) override {
        const Real* x = this->reals(args.inputs[0]);
        Real* y = this->reals(args.output);
        for (std::int64_t i = 0; i < this->outputs_; ++i)
            y[i] = x[i] > 0 ? x[i] : Real{0};
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        const Real* x = this->reals(args.inputs[0]);
        const Real* dy = this->reals(args.output_gradient);
        Real* dx = this->reals(args.input_gradients[0]);
        for (std::int64_t i = 0; i < this->outputs_; ++i)
            dx[i] = x[i] > 0 ? dy[i] : Real{0};
    }
};

// saved, with a fused ReLU: one byte per element, whether it passed.
template <class Real>
class Add : public PlainLayer<Real> {
public:
    Add(const Layer& layer, int samples) : PlainLayer<Real>(layer, samples) {
        this->bytes_.saved_until_input = layer.relu ? round_up(this->outputs_) : 0;
    }

    void forward(const LayerArgs& args, bool save) override {
        const Real* left = this->reals(args.inputs[0]);
        const Real* right = this->reals(args.inputs[1]);
        Real* y = this->reals(args.output);
        for (std::int64_t i = 0; i < this->outputs_; ++i) {
            const Real sum = left[i] + right[i];
            y[i] = this->layer_.relu && !(sum > 0) ? Real{0} : sum;
            if (save && this->layer_.relu)
                args.saved[i] = std::byte{sum > 0};
        }
    }

    void backward_input(const LayerArgs& args) override {
        const Real* dy = this->reals(args.output_gradient);
        for (std::byte* gradient : args.input_gradients) {
            if (!gradient)
                continue;
            for (std::int64_t i = 0; i < this->outputs_; ++i)
                this->reals(gradient)[i] = this->layer_.relu && args.saved[i] == std::byte{} ? Real{0} : dy[i];
        }
    }
};

}  // namespace

template <class Real>
std::unique_ptr<LayerKernel> make_relu(const Layer& layer, int samples) {
    return std::make_unique<Relu<Real>>(layer, samples);
}
template std::unique_ptr<LayerKernel> make_relu<float>(const Layer&, int);
template std::unique_ptr<LayerKernel> make_relu<double>(const Layer&, int);

template <class Real>
std::unique_ptr<LayerKernel> make_add(const Layer& layer, int samples) {
    return std::make_unique<Add<Real>>(layer, samples);
}
template std::unique_ptr<LayerKernel> make_add<float>(const Layer&, int);
template std::unique_ptr<LayerKernel> make_add<double>(const Layer&, int);

}  // namespace pw::reference
