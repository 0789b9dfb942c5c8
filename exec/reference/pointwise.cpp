#include "exec/reference/layers.h"
#include "workloads/random.h"

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
            y[i] = x[i] <= 0 ? Real{0} : x[i];  // a NaN is kept
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        const Real* x = this->reals(args.inputs[0]);
        const Real* dy = this->reals(args.output_gradient);
        Real* dx = this->reals(args.input_gradients[0]);
        for (std::int64_t i = 0; i < this->outputs_; ++i)
            dx[i] = x[i] <= 0 ? Real{0} : dy[i];
    }
};

// saved with a fused ReLU: one byte per element, whether it passed.
template <class Real>
class Add : public PlainLayer<Real> {
public:
    Add(const Layer& layer, int samples) : PlainLayer<Real>(layer, samples) {
        this->bytes_.saved_until_input = layer.relu ? aligned(this->outputs_) : 0;
    }

    void forward(const LayerArgs& args, bool save) override {
        const Real* left = this->reals(args.inputs[0]);
        const Real* right = this->reals(args.inputs[1]);
        Real* y = this->reals(args.output);
        for (std::int64_t i = 0; i < this->outputs_; ++i) {
            const Real sum = left[i] + right[i];
            y[i] = this->layer_.relu && sum <= 0 ? Real{0} : sum;
            if (save && this->layer_.relu)
                args.saved[i] = std::byte{!(sum <= 0)};
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

template <class Real>
class Concat : public PlainLayer<Real> {
public:
    Concat(const Layer& layer, int samples)
        : PlainLayer<Real>(layer, samples),
          elements_{input_dims(layer, 0).elements(), input_dims(layer, 1).elements()} {}

    void forward(const LayerArgs& args, bool) override {
        for_parts([&](std::size_t k, std::int64_t part, std::int64_t whole) {
            std::copy_n(this->reals(args.inputs[k]) + part, elements_[k], this->reals(args.output) + whole);
        });
    }

    void backward_input(const LayerArgs& args) override {
        for_parts([&](std::size_t k, std::int64_t part, std::int64_t whole) {
            if (args.input_gradients[k])
                std::copy_n(this->reals(args.output_gradient) + whole, elements_[k],
                            this->reals(args.input_gradients[k]) + part);
        });
    }

private:
    // Calls visit(input, offset of a sample in it, offset of the same values in the output).
    template <class Visit>
    void for_parts(Visit visit) const {
        for (std::int64_t n = 0; n < this->samples_; ++n) {
            const std::int64_t whole = n * (elements_[0] + elements_[1]);
            visit(std::size_t{0}, n * elements_[0], whole);
            visit(std::size_t{1}, n * elements_[1], whole + elements_[0]);
        }
    }

    std::int64_t elements_[2];
};

// saved: one byte per element, whether it passed.
template <class Real>
class Dropout : public PlainLayer<Real> {
public:
    Dropout(const Layer& layer, int samples)
        : PlainLayer<Real>(layer, samples), scale_(static_cast<Real>(1 / (1 - layer.probability))) {
        this->bytes_.saved_until_input = aligned(this->outputs_);
    }

    void forward(const LayerArgs& args, bool save) override {
        const Real* x = this->reals(args.inputs[0]);
        Real* y = this->reals(args.output);
        if (!save) {
            std::copy_n(x, this->outputs_, y);
            return;
        }
        const std::int64_t elements = this->layer_.output.elements();
        const std::uint32_t threshold = dropout_threshold(this->layer_.probability);
        for (std::int64_t i = 0; i < this->outputs_; ++i) {
            const DropoutKey key = dropout_key(args.seed, i / elements);
            const std::int64_t element = args.slice * elements + i % elements;
            const bool passed = dropout_bits(key, static_cast<std::uint32_t>(element)) >= threshold;
            y[i] = passed ? x[i] * scale_ : Real{0};
            if (args.saved)
                args.saved[i] = std::byte{passed};
        }
    }

    void backward_input(const LayerArgs& args) override {
        if (!args.input_gradients[0])
            return;
        const Real* dy = this->reals(args.output_gradient);
        Real* dx = this->reals(args.input_gradients[0]);
        for (std::int64_t i = 0; i < this->outputs_; ++i)
            dx[i] = args.saved[i] != std::byte{} ? dy[i] * scale_ : Real{0};
    }

private:
    Real scale_;
};

}  // namespace

extern const LayerRow kRelu = row_of<Relu>(LayerKind::Relu);
extern const LayerRow kAdd = row_of<Add>(LayerKind::Add);
extern const LayerRow kConcat = row_of<Concat>(LayerKind::Concat);
extern const LayerRow kDropout = row_of<Dropout>(LayerKind::Dropout);

}  // namespace pw::reference
