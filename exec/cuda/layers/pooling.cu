// Max pool over windows of any size, and global average pool.
#include "exec/cuda/layers/layers.h"
#include "exec/cuda/layers/packs.h"

#include <algorithm>

namespace pw::cuda {

namespace {

struct Windows {
    int input_height, input_width, output_height, output_width, kernel, stride, padding;
};

struct Pixel {
    unsigned pack, sample;
    int row, column;
};

__device__ inline Pixel pixel_of(unsigned item, unsigned packs, int height, int width) {
    const unsigned pixel = item / packs, line = pixel / static_cast<unsigned>(width);
    const unsigned sample = line / static_cast<unsigned>(height);
    return {item - pixel * packs, sample, static_cast<int>(line - sample * static_cast<unsigned>(height)),
            static_cast<int>(pixel - line * static_cast<unsigned>(width))};
}

__device__ inline unsigned place_of(const Pixel& pixel, int row, int column, unsigned packs, int height, int width) {
    const unsigned line = pixel.sample * static_cast<unsigned>(height) + static_cast<unsigned>(row);
    return (line * static_cast<unsigned>(width) + static_cast<unsigned>(column)) * packs + pixel.pack;
}

__device__ inline int clamped(int value, int end) { return value < 0 ? 0 : value < end ? value : end - 1; }

__device__ inline bool is_nan(float value) { return value != value; }

// A thread per pack of outputs. NaN counts as a maximum. A window that exceeds the image reads its edge again,
// which changes no maximum. `chosen` may be null.
template <class T, int kWidth>
__global__ void maxima(const Pack<T, kWidth>* __restrict__ x, Pack<T, kWidth>* __restrict__ y,
                       Pack<unsigned char, kWidth>* __restrict__ chosen, Windows windows, unsigned packs,
                       std::int64_t items) {
    if (item() >= items)
        return;
    const auto i = static_cast<unsigned>(item());
    const Pixel output = pixel_of(i, packs, windows.output_height, windows.output_width);
    const int top = output.row * windows.stride - windows.padding;
    const int left = output.column * windows.stride - windows.padding;
    Pack<float, kWidth> best = {};
    Pack<unsigned char, kWidth> places = {};
    bool any = false;
    for (int ky = 0; ky < windows.kernel; ++ky) {
        const int row = clamped(top + ky, windows.input_height);
        const auto column_at = [&](unsigned kx) { return clamped(left + static_cast<int>(kx), windows.input_width); };
        for_places<3>(
            0, 1, static_cast<unsigned>(windows.kernel),
            [&](unsigned kx) {
                return x[place_of(output, row, column_at(kx), packs, windows.input_height, windows.input_width)];
            },
            [&](unsigned kx, const Pack<T, kWidth>& read) {
                const Pack<float, kWidth> values = reals(read);
                const auto place = static_cast<unsigned char>((row - top) * windows.kernel + column_at(kx) - left);
                for (int k = 0; k < kWidth; ++k)
                    if (!any || values.values[k] > best.values[k] || is_nan(values.values[k])) {
                        best.values[k] = values.values[k];
                        places.values[k] = place;
                    }
                any = true;
            });
    }
    y[i] = rounded<T>(best);
    if (chosen)
        chosen[i] = places;
}

template <class T, int kWidth>
struct GradientAndPlaces {
    Pack<T, kWidth> dy;
    Pack<unsigned char, kWidth> places;
};

// A thread per pack of inputs: adds up the gradients of the windows around it, in their order.
template <class T, int kWidth>
__global__ void gather(const Pack<T, kWidth>* __restrict__ dy, const Pack<unsigned char, kWidth>* __restrict__ chosen,
                       Pack<T, kWidth>* __restrict__ dx, Windows windows, unsigned packs, std::int64_t items) {
    if (item() >= items)
        return;
    const auto i = static_cast<unsigned>(item());
    const Pixel input = pixel_of(i, packs, windows.input_height, windows.input_width);
    const int y = input.row + windows.padding, x = input.column + windows.padding;
    const auto first_of = [&](int place) {
        return place < windows.kernel ? 0 : (place - windows.kernel) / windows.stride + 1;
    };
    const int last_row = clamped(y / windows.stride, windows.output_height);
    const int last_column = clamped(x / windows.stride, windows.output_width);
    Pack<float, kWidth> sum = {};
    for (int row = first_of(y); row <= last_row; ++row)
        for_places<2>(
            static_cast<unsigned>(first_of(x)), 1, static_cast<unsigned>(last_column) + 1,
            [&](unsigned column) {
                const unsigned output =
                    place_of(input, row, static_cast<int>(column), packs, windows.output_height, windows.output_width);
                return GradientAndPlaces<T, kWidth>{dy[output], chosen[output]};
            },
            [&](unsigned column, const GradientAndPlaces<T, kWidth>& read) {
                const int kx = x - static_cast<int>(column) * windows.stride;
                const int place = (y - row * windows.stride) * windows.kernel + kx;
                const Pack<float, kWidth> gradients = reals(read.dy);
                for (int k = 0; k < kWidth; ++k)
                    sum.values[k] += read.places.values[k] == place ? gradients.values[k] : 0;
            });
    dx[i] = rounded<T>(sum);
}

// A thread per sample and pack of channels.
template <class T, int kWidth>
__global__ void __launch_bounds__(kBlock, 1)
    averages(const Pack<T, kWidth>* __restrict__ x, Pack<T, kWidth>* __restrict__ y, unsigned packs, unsigned pixels,
             std::int64_t items) {
    if (item() >= items)
        return;
    const auto i = static_cast<unsigned>(item());
    const unsigned sample = i / packs, pack = i - sample * packs;
    Pack<float, kWidth> sum = {};
    for_places<8>(
        sample * pixels, 1, (sample + 1) * pixels, [&](unsigned pixel) { return x[pixel * packs + pack]; },
        [&](unsigned, const Pack<T, kWidth>& read) {
            const Pack<float, kWidth> values = reals(read);
            for (int k = 0; k < kWidth; ++k)
                sum.values[k] += values.values[k];
        });
    for (float& value : sum.values)
        value /= static_cast<float>(pixels);
    y[i] = rounded<T>(sum);
}

// A thread per pack of inputs.
template <class T, int kWidth>
__global__ void spread(const Pack<T, kWidth>* __restrict__ dy, Pack<T, kWidth>* __restrict__ dx, unsigned packs,
                       unsigned pixels, std::int64_t items) {
    if (item() >= items)
        return;
    const auto i = static_cast<unsigned>(item());
    const unsigned pixel = i / packs, sample = pixel / pixels;
    Pack<float, kWidth> share = reals(dy[sample * packs + (i - pixel * packs)]);
    for (float& value : share.values)
        value /= static_cast<float>(pixels);
    dx[i] = rounded<T>(share);
}

// The base of both pools. A pack has consecutive channels.
template <class T, int kWidth>
class Pool : public CudaLayer {
public:
    Pool(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          packs_(static_cast<unsigned>(layer.input.channels / kWidth)),
          inputs_(samples * layer.input.elements() / kWidth),
          outputs_(samples * layer.output.elements() / kWidth) {
        check_items(std::max(inputs_, outputs_));
    }

protected:
    static auto tensor(auto* data) { return packs<T, kWidth>(data); }

    unsigned packs_;                 // per pixel
    std::int64_t inputs_, outputs_;  // packs per tensor
};

constexpr int kWidestWindow = 16;  // a position in it fits in a byte

// saved: for every output the position in its window, row by row, from which it was taken (the first of equal
// values).
template <class T, int kWidth>
class MaxPool : public Pool<T, kWidth> {
public:
    MaxPool(GpuShare& device, const Layer& layer, int samples)
        : Pool<T, kWidth>(device, layer, samples), windows_{layer.input.height, layer.input.width, layer.output.height,
                                                            layer.output.width, layer.kernel,      layer.stride,
                                                            layer.padding} {
        if (layer.kernel > kWidestWindow)
            this->refuse("it pools windows of " + std::to_string(layer.kernel) +
                             " rows, but the backend cuda pools at most " + std::to_string(kWidestWindow),
                         "choose smaller windows, or set run.backend: cpu");
        this->bytes_.saved_until_input = aligned(this->outputs_ * kWidth);
    }

    void forward(const LayerArgs& args, bool save) override {
        launch(this->device_.stream(), this->outputs_, maxima<T, kWidth>, this->tensor(args.inputs[0]),
               this->tensor(args.output), save ? places(args) : nullptr, windows_, this->packs_, this->outputs_);
    }

    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0])
            launch(this->device_.stream(), this->inputs_, gather<T, kWidth>, this->tensor(args.output_gradient),
                   places(args), this->tensor(args.input_gradients[0]), windows_, this->packs_, this->inputs_);
    }

private:
    static auto places(const LayerArgs& args) { return packs<unsigned char, kWidth>(args.saved); }

    Windows windows_;
};

template <class T, int kWidth>
class AveragePool : public Pool<T, kWidth> {
public:
    AveragePool(GpuShare& device, const Layer& layer, int samples)
        : Pool<T, kWidth>(device, layer, samples),
          pixels_(static_cast<unsigned>(layer.input.height) * static_cast<unsigned>(layer.input.width)) {}

    void forward(const LayerArgs& args, bool) override {
        launch(this->device_.stream(), this->outputs_, averages<T, kWidth>, this->tensor(args.inputs[0]),
               this->tensor(args.output), this->packs_, pixels_, this->outputs_);
    }

    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0])
            launch(this->device_.stream(), this->inputs_, spread<T, kWidth>, this->tensor(args.output_gradient),
                   this->tensor(args.input_gradients[0]), this->packs_, pixels_, this->inputs_);
    }

private:
    unsigned pixels_;
};

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_max_pool(GpuShare& device, const Layer& layer, int samples) {
    if (layer.input.channels % kWidest<T> == 0)
        return std::make_unique<MaxPool<T, kWidest<T>>>(device, layer, samples);
    return std::make_unique<MaxPool<T, 1>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_max_pool<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_max_pool<Bf16>(GpuShare&, const Layer&, int);

template <class T>
std::unique_ptr<LayerKernel> make_average_pool(GpuShare& device, const Layer& layer, int samples) {
    if (layer.input.channels % kWidest<T> == 0)
        return std::make_unique<AveragePool<T, kWidest<T>>>(device, layer, samples);
    return std::make_unique<AveragePool<T, 1>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_average_pool<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_average_pool<Bf16>(GpuShare&, const Layer&, int);

}  // namespace pw::cuda
