// Dropout with the random numbers of all backends. Every launch of a captured graph draws new numbers: pinned
// memory has the number of samples between the captured step and the launched one.
#include "exec/cuda/layers/layers.h"
#include "exec/cuda/layers/packs.h"
#include "workloads/random.h"

namespace pw::cuda {

namespace {

struct Drawing {
    std::uint64_t seed;
    std::uint32_t threshold;
    float factor;               // for kept elements
    unsigned channels, pixels;  // of a sample
};

// `kept` may be null. `later` is the number of samples between the samples of `drawing` and the current ones.
template <class T>
__global__ void drop(const T* __restrict__ x, T* __restrict__ y, unsigned char* __restrict__ kept,
                     const std::int64_t* __restrict__ later, Drawing drawing, std::int64_t items) {
    const std::int64_t i = item();
    if (i >= items)
        return;
    const std::int64_t elements = std::int64_t{drawing.channels} * drawing.pixels, sample = i / elements;
    const auto place = static_cast<unsigned>(i - sample * elements), pixel = place / drawing.channels;
    const unsigned plain = (place - pixel * drawing.channels) * drawing.pixels + pixel;
    const bool is_kept = dropout_bits(dropout_key(drawing.seed, *later + sample), plain) >= drawing.threshold;
    y[i] = rounded<T>(is_kept ? real(x[i]) * drawing.factor : 0);
    if (kept)
        kept[i] = is_kept ? 1 : 0;
}

template <class T>
__global__ void drop_gradient(const T* __restrict__ dy, const unsigned char* __restrict__ kept, T* __restrict__ dx,
                              float factor, std::int64_t items) {
    const std::int64_t i = item();
    if (i < items)
        dx[i] = rounded<T>(kept[i] != 0 ? real(dy[i]) * factor : 0);
}

// saved: a byte per element: whether it was kept.
template <class T>
class Dropout : public CudaLayer {
public:
    Dropout(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          items_(samples * layer.output.elements()),
          factor_(static_cast<float>(1 / (1 - layer.probability))) {
        bytes_.saved_until_input = aligned(items_);
        bytes_.scratch = aligned(sizeof(std::int64_t));
    }

    void forward(const LayerArgs& args, bool save) override {
        const T* x = reinterpret_cast<const T*>(args.inputs[0]);
        if (!save) {
            check(cudaMemcpyAsync(args.output, args.inputs[0], static_cast<std::size_t>(items_) * sizeof(T),
                                  cudaMemcpyDeviceToDevice, device_.stream()),
                  "cudaMemcpyAsync");
            return;
        }
        const Drawing drawing{args.seed, dropout_threshold(layer_.probability), factor_,
                              static_cast<unsigned>(layer_.input.channels),
                              static_cast<unsigned>(layer_.input.height * layer_.input.width)};
        check(cudaMemcpyAsync(args.scratch, &device_.later()->samples, sizeof(std::int64_t), cudaMemcpyHostToDevice,
                              device_.stream()),
              "cudaMemcpyAsync");
        launch(device_.stream(), items_, drop<T>, x, reinterpret_cast<T*>(args.output), kept(args),
               reinterpret_cast<const std::int64_t*>(args.scratch), drawing, items_);
    }

    void backward_input(const LayerArgs& args) override {
        if (args.input_gradients[0])
            launch(device_.stream(), items_, drop_gradient<T>, reinterpret_cast<const T*>(args.output_gradient),
                   kept(args), reinterpret_cast<T*>(args.input_gradients[0]), factor_, items_);
    }

private:
    static unsigned char* kept(const LayerArgs& args) { return reinterpret_cast<unsigned char*>(args.saved); }

    std::int64_t items_;
    float factor_;
};

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_dropout(GpuShare& device, const Layer& layer, int samples) {
    return std::make_unique<Dropout<T>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_dropout<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_dropout<Bf16>(GpuShare&, const Layer&, int);

}  // namespace pw::cuda
