// ReLU, GELU, gated SiLU and Add over flat tensors, padding included.
#include "exec/cuda/layers/adding.h"
#include "exec/cuda/layers/layers.h"
#include "exec/cuda/layers/packs.h"

#include <cmath>

namespace pw::cuda {

namespace {

template <class T>
using Widest = Pack<T, kWidest<T>>;
template <class T>
using Eight = Pack<T, 8>;  // an element per bit of a byte of the mask

template <class T>
__global__ void relu(const Widest<T>* __restrict__ x, Widest<T>* __restrict__ y, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    Widest<T> values = x[i];
    for (T& value : values.values)
        value = real(value) <= 0 ? rounded<T>(0) : value;  // a NaN is kept
    y[i] = values;
}

template <class T>
__global__ void relu_gradient(const Widest<T>* __restrict__ x, const Widest<T>* __restrict__ dy,
                              Widest<T>* __restrict__ dx, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    const Widest<T> values = x[i];
    Widest<T> gradient = dy[i];
    for (int k = 0; k < kWidest<T>; ++k)
        if (real(values.values[k]) <= 0)
            gradient.values[k] = rounded<T>(0);
    dx[i] = gradient;
}

// The cumulative normal distribution and its density.
__device__ inline float normal_below(float x) { return 0.5f * erfcf(-0.70710678f * x); }
__device__ inline float normal_density(float x) { return 0.39894228f * expf(-0.5f * x * x); }

template <class T>
__global__ void gelu(const Widest<T>* __restrict__ x, Widest<T>* __restrict__ y, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    Pack<float, kWidest<T>> values = reals(x[i]);
    for (float& value : values.values)
        value *= normal_below(value);
    y[i] = rounded<T>(values);
}

template <class T>
__global__ void gelu_gradient(const Widest<T>* __restrict__ x, const Widest<T>* __restrict__ dy,
                              Widest<T>* __restrict__ dx, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    const Pack<float, kWidest<T>> values = reals(x[i]);
    Pack<float, kWidest<T>> gradient = reals(dy[i]);
    for (int k = 0; k < kWidest<T>; ++k) {
        const float value = values.values[k];
        gradient.values[k] *= normal_below(value) + value * normal_density(value);
    }
    dx[i] = rounded<T>(gradient);
}

// The logistic function.
__device__ inline float logistic(float x) { return 1 / (1 + expf(-x)); }

template <class T>
__global__ void gated_silu(const Widest<T>* __restrict__ gate, const Widest<T>* __restrict__ x,
                           Widest<T>* __restrict__ y, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    const Pack<float, kWidest<T>> gates = reals(gate[i]);
    Pack<float, kWidest<T>> values = reals(x[i]);
    for (int k = 0; k < kWidest<T>; ++k)
        values.values[k] *= gates.values[k] * logistic(gates.values[k]);
    y[i] = rounded<T>(values);
}

// `dgate` and `dx` may be null.
template <class T>
__global__ void gated_silu_gradient(const Widest<T>* __restrict__ gate, const Widest<T>* __restrict__ x,
                                    const Widest<T>* __restrict__ dy, Widest<T>* __restrict__ dgate,
                                    Widest<T>* __restrict__ dx, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    const Pack<float, kWidest<T>> gates = reals(gate[i]), values = reals(x[i]), gradient = reals(dy[i]);
    Pack<float, kWidest<T>> of_gates, of_values;
    for (int k = 0; k < kWidest<T>; ++k) {
        const float at = gates.values[k], share = logistic(at);
        of_gates.values[k] = gradient.values[k] * values.values[k] * share * (1 + at * (1 - share));
        of_values.values[k] = gradient.values[k] * at * share;
    }
    if (dgate)
        dgate[i] = rounded<T>(of_gates);
    if (dx)
        dx[i] = rounded<T>(of_values);
}

// `mask` may be null.
template <class T>
__global__ void add(const Eight<T>* __restrict__ left, const Eight<T>* __restrict__ right, Eight<T>* __restrict__ y,
                    unsigned char* __restrict__ mask, bool relu_on_sum, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    const unsigned char passed = put_sum(reals(left[i]), reals(right[i]), relu_on_sum, y[i]);
    if (mask)
        mask[i] = passed;
}

// Without a mask all elements pass. `first` and `second` may be null, and one of them may be dy.
template <class T>
__global__ void copy_gradient(const Eight<T>* dy, const unsigned char* __restrict__ mask, Eight<T>* first,
                              Eight<T>* second, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    Eight<T> gradient = dy[i];
    keep_passed(gradient, mask ? mask[i] : 0xffu);
    if (first)
        first[i] = gradient;
    if (second)
        second[i] = gradient;
}

// ReLU and GELU: a function of each value.
template <class T>
class Activation : public CudaLayer {
public:
    Activation(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          items_(bytes_.output / static_cast<Bytes>(sizeof(Widest<T>))),
          is_gelu_(layer.kind == LayerKind::Gelu) {}

    void forward(const LayerArgs& args, bool) override {
        launch(device_.stream(), items_, is_gelu_ ? gelu<T> : relu<T>, widest(args.inputs[0]), widest(args.output),
               items_);
    }

    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0])
            launch(device_.stream(), items_, is_gelu_ ? gelu_gradient<T> : relu_gradient<T>, widest(args.inputs[0]),
                   widest(args.output_gradient), widest(args.input_gradients[0]), items_);
    }

private:
    static auto widest(auto* data) { return packs<T, kWidest<T>>(data); }

    std::int64_t items_;
    bool is_gelu_;
};

// The first input is the gate.
template <class T>
class GatedSilu : public CudaLayer {
public:
    GatedSilu(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples), items_(bytes_.output / static_cast<Bytes>(sizeof(Widest<T>))) {}

    void forward(const LayerArgs& args, bool) override {
        launch(device_.stream(), items_, gated_silu<T>, widest(args.inputs[0]), widest(args.inputs[1]),
               widest(args.output), items_);
    }

    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0] || args.input_gradients[1])
            launch(device_.stream(), items_, gated_silu_gradient<T>, widest(args.inputs[0]), widest(args.inputs[1]),
                   widest(args.output_gradient), widest(args.input_gradients[0]), widest(args.input_gradients[1]),
                   items_);
    }

private:
    static auto widest(auto* data) { return packs<T, kWidest<T>>(data); }

    std::int64_t items_;
};

// The gradients of both inputs are equal: if both have the same address, they are written once, and not at all if
// that is the address of dy and there is no ReLU. saved with a fused ReLU: one bit per element, whether it passed.
template <class T>
class Add : public CudaLayer {
public:
    Add(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples), items_(bytes_.output / static_cast<Bytes>(sizeof(Eight<T>))) {
        bytes_.saved_until_input = layer.relu ? aligned(items_) : 0;
        bytes_.joins = true;
    }

    void forward(const LayerArgs& args, bool save) override {
        if (!args.norms.empty()) {
            const Dims dims = layer_.output;
            add_normalised<T>(device_.stream(), args, dims.channels, std::int64_t{samples_} * dims.height * dims.width,
                              layer_.relu, mask(args));
            return;
        }
        launch(device_.stream(), items_, add<T>, eights(args.inputs[0]), eights(args.inputs[1]), eights(args.output),
               save ? mask(args) : nullptr, layer_.relu, items_);
    }

    void backward_input(const LayerArgs& args) override {
        const auto target = [&](std::byte* gradient) {
            return gradient == args.output_gradient && !layer_.relu ? nullptr : gradient;
        };
        std::byte *first = target(args.input_gradients[0]), *second = target(args.input_gradients[1]);
        if (second == first)
            second = nullptr;
        if (first || second)
            launch(device_.stream(), items_, copy_gradient<T>, eights(args.output_gradient), mask(args), eights(first),
                   eights(second), items_);
    }

private:
    static auto eights(auto* data) { return packs<T, 8>(data); }
    unsigned char* mask(const LayerArgs& args) const {
        return layer_.relu ? reinterpret_cast<unsigned char*>(args.saved) : nullptr;
    }

    std::int64_t items_;
};

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_activation(GpuShare& device, const Layer& layer, int samples) {
    return std::make_unique<Activation<T>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_activation<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_activation<Bf16>(GpuShare&, const Layer&, int);

template <class T>
std::unique_ptr<LayerKernel> make_gated_silu(GpuShare& device, const Layer& layer, int samples) {
    return std::make_unique<GatedSilu<T>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_gated_silu<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_gated_silu<Bf16>(GpuShare&, const Layer&, int);

template <class T>
std::unique_ptr<LayerKernel> make_add(GpuShare& device, const Layer& layer, int samples) {
    return std::make_unique<Add<T>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_add<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_add<Bf16>(GpuShare&, const Layer&, int);

}  // namespace pw::cuda
