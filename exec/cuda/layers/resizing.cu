// Concat and upsampling. The channels of a pixel are adjacent.
#include "exec/cuda/layers/layers.h"
#include "exec/cuda/layers/packs.h"

namespace pw::cuda {

namespace {

// The packs of a pixel: the packs of the first tensor, then the packs of the second.
struct Sides {
    unsigned first, second;
    __device__ unsigned all() const { return first + second; }
};

template <class T, int kWidth>
__global__ void join(const Pack<T, kWidth>* __restrict__ first, const Pack<T, kWidth>* __restrict__ second,
                     Pack<T, kWidth>* __restrict__ y, Sides sides, unsigned items) {
    const auto i = static_cast<unsigned>(item());
    if (i >= items)
        return;
    const unsigned pixel = i / sides.all(), pack = i - pixel * sides.all();
    y[i] = pack < sides.first ? first[pixel * sides.first + pack] : second[pixel * sides.second + (pack - sides.first)];
}

// `first` and `second` may be null.
template <class T, int kWidth>
__global__ void separate(const Pack<T, kWidth>* __restrict__ dy, Pack<T, kWidth>* __restrict__ first,
                         Pack<T, kWidth>* __restrict__ second, Sides sides, unsigned items) {
    const auto i = static_cast<unsigned>(item());
    if (i >= items)
        return;
    const unsigned pixel = i / sides.all(), pack = i - pixel * sides.all();
    if (pack < sides.first && first)
        first[pixel * sides.first + pack] = dy[i];
    if (pack >= sides.first && second)
        second[pixel * sides.second + (pack - sides.first)] = dy[i];
}

template <class T, int kWidth>
class Concat : public CudaLayer {
public:
    Concat(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          sides_{static_cast<unsigned>(layer.input.channels) / kWidth,
                 static_cast<unsigned>(layer.output.channels - layer.input.channels) / kWidth},
          items_(static_cast<unsigned>(samples * layer.output.elements() / kWidth)) {
        check_items(samples * layer.output.elements() / kWidth);
    }

    void forward(const LayerArgs& args, bool) override {
        launch(device_.stream(), items_, join<T, kWidth>, tensor(args.inputs[0]), tensor(args.inputs[1]),
               tensor(args.output), sides_, items_);
    }

    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0] || args.input_gradients[1])
            launch(device_.stream(), items_, separate<T, kWidth>, tensor(args.output_gradient),
                   tensor(args.input_gradients[0]), tensor(args.input_gradients[1]), sides_, items_);
    }

private:
    static auto tensor(auto* data) { return packs<T, kWidth>(data); }

    Sides sides_;
    unsigned items_;
};

struct Enlarged {
    unsigned packs, height, width,
        factor;  // packs per pixel, size of the input (a pixel becomes factor x factor pixels)
};

template <class T, int kWidth>
__global__ void repeat(const Pack<T, kWidth>* __restrict__ x, Pack<T, kWidth>* __restrict__ y, Enlarged sizes,
                       unsigned items) {
    const auto i = static_cast<unsigned>(item());
    if (i >= items)
        return;
    const unsigned pixel = i / sizes.packs, line = pixel / (sizes.width * sizes.factor);
    const unsigned column = (pixel - line * sizes.width * sizes.factor) / sizes.factor;
    // The number of lines of a sample is a multiple of the factor.
    y[i] = x[(line / sizes.factor * sizes.width + column) * sizes.packs + (i - pixel * sizes.packs)];
}

// One thread per pack of inputs: adds up the pixels that were made of it, row by row.
template <class T, int kWidth>
__global__ void sum_repeated(const Pack<T, kWidth>* __restrict__ dy, Pack<T, kWidth>* __restrict__ dx, Enlarged sizes,
                             unsigned items) {
    const auto i = static_cast<unsigned>(item());
    if (i >= items)
        return;
    const unsigned pixel = i / sizes.packs, line = pixel / sizes.width, column = pixel - line * sizes.width;
    const unsigned first = (line * sizes.factor * sizes.width + column) * sizes.factor;  // pixel of the output
    const Pack<T, kWidth>* corner = dy + first * sizes.packs + (i - pixel * sizes.packs);
    Pack<float, kWidth> sum = {};
    for (unsigned row = 0; row < sizes.factor; ++row)
        for_places<2>(
            0, 1, sizes.factor,
            [&](unsigned place) { return corner[(row * sizes.width * sizes.factor + place) * sizes.packs]; },
            [&](unsigned, const Pack<T, kWidth>& read) {
                const Pack<float, kWidth> values = reals(read);
                for (int k = 0; k < kWidth; ++k)
                    sum.values[k] += values.values[k];
            });
    dx[i] = rounded<T>(sum);
}

template <class T, int kWidth>
class Upsample : public CudaLayer {
public:
    Upsample(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          sizes_{static_cast<unsigned>(layer.input.channels) / kWidth, static_cast<unsigned>(layer.input.height),
                 static_cast<unsigned>(layer.input.width), static_cast<unsigned>(layer.stride)},
          inputs_(static_cast<unsigned>(samples * layer.input.elements() / kWidth)),
          outputs_(inputs_ * sizes_.factor * sizes_.factor) {
        check_items(samples * layer.output.elements() / kWidth);
    }

    void forward(const LayerArgs& args, bool) override {
        launch(device_.stream(), outputs_, repeat<T, kWidth>, tensor(args.inputs[0]), tensor(args.output), sizes_,
               outputs_);
    }

    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0])
            launch(device_.stream(), inputs_, sum_repeated<T, kWidth>, tensor(args.output_gradient),
                   tensor(args.input_gradients[0]), sizes_, inputs_);
    }

private:
    static auto tensor(auto* data) { return packs<T, kWidth>(data); }

    Enlarged sizes_;
    unsigned inputs_, outputs_;  // in packs
};

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_concat(GpuShare& device, const Layer& layer, int samples) {
    if (layer.input.channels % kWidest<T> == 0 && layer.output.channels % kWidest<T> == 0)
        return std::make_unique<Concat<T, kWidest<T>>>(device, layer, samples);
    return std::make_unique<Concat<T, 1>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_concat<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_concat<Bf16>(GpuShare&, const Layer&, int);

template <class T>
std::unique_ptr<LayerKernel> make_upsample(GpuShare& device, const Layer& layer, int samples) {
    if (layer.input.channels % kWidest<T> == 0)
        return std::make_unique<Upsample<T, kWidest<T>>>(device, layer, samples);
    return std::make_unique<Upsample<T, 1>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_upsample<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_upsample<Bf16>(GpuShare&, const Layer&, int);

}  // namespace pw::cuda
