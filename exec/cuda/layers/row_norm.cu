// Layer norm: a row is a token. A few threads sum over a row, in a fixed order. Sums over the rows are made in
// shares of the rows.
#include "exec/cuda/layers/layers.h"
#include "exec/cuda/layers/linear_loops.h"
#include "exec/cuda/layers/softmax.h"

#include <cassert>

namespace pw::cuda {

namespace {

struct Pair {
    float first, second;
};

// Sums x - k and its square, where k is the row's first value, so that a large mean does not spoil the variance.
template <class T, int kWidth>
__global__ void sum_moments(const Pack<T, kWidth>* __restrict__ x, Pair* __restrict__ parts, unsigned packs,
                            unsigned parts_per_row, unsigned items) {
    const auto thread = static_cast<unsigned>(item());
    if (thread >= items)
        return;
    const unsigned row = thread / parts_per_row;
    const Pack<T, kWidth>* values = x + row * packs;
    const float first = real(values[0].values[0]);
    Pair sum = {0, 0};
    for_places<4>(
        thread - row * parts_per_row, parts_per_row, packs, [&](unsigned pack) { return values[pack]; },
        [&](unsigned, const Pack<T, kWidth>& read) {
            for (int k = 0; k < kWidth; ++k) {
                const float difference = real(read.values[k]) - first;
                sum.first += difference;
                sum.second += difference * difference;
            }
        });
    parts[thread] = sum;
}

struct Means {
    double first, second;
};

__device__ inline Means means_of(const Pair* parts, unsigned count, double width) {
    Means sum = {0, 0};
    for (unsigned part = 0; part < count; ++part) {
        sum.first += static_cast<double>(parts[part].first);
        sum.second += static_cast<double>(parts[part].second);
    }
    return {sum.first / width, sum.second / width};
}

// state: mean and inverse deviation of every row.
template <class T>
__global__ void finish_moments(const T* __restrict__ x, const Pair* __restrict__ parts, Pair* __restrict__ state,
                               unsigned width, unsigned parts_per_row, unsigned rows) {
    const auto row = static_cast<unsigned>(item());
    if (row >= rows)
        return;
    const Means means = means_of(parts + row * parts_per_row, parts_per_row, width);
    const double difference = means.second - means.first * means.first;
    state[row] = {static_cast<float>(static_cast<double>(real(x[row * width])) + means.first),
                  static_cast<float>(1 / sqrt((difference < 0 ? 0 : difference) + kNormEpsilon))};
}

// parameters: scale, shift.
template <class T, int kWidth>
__global__ void normalise(const Pack<T, kWidth>* __restrict__ x, const Pair* __restrict__ state,
                          const Pack<float, kWidth>* __restrict__ parameters, Pack<T, kWidth>* __restrict__ y,
                          unsigned packs, unsigned items) {
    const auto i = static_cast<unsigned>(item());
    if (i >= items)
        return;
    const unsigned row = i / packs, pack = i - row * packs;
    const Pair moments = state[row];
    const Pack<float, kWidth> scale = parameters[pack], shift = parameters[packs + pack];
    Pack<float, kWidth> values = reals(x[i]);
    for (int k = 0; k < kWidth; ++k)
        values.values[k] = (values.values[k] - moments.first) * moments.second * scale.values[k] + shift.values[k];
    y[i] = rounded<T>(values);
}

template <class T, int kWidth>
struct InputAndGradient {
    Pack<T, kWidth> x, dy;
};

// Sums the gradient times the scale, and this product times the normalised value.
template <class T, int kWidth>
__global__ void sum_gradients(const Pack<T, kWidth>* __restrict__ x, const Pack<T, kWidth>* __restrict__ dy,
                              const Pair* __restrict__ state, const Pack<float, kWidth>* __restrict__ scales,
                              Pair* __restrict__ parts, unsigned packs, unsigned parts_per_row, unsigned items) {
    const auto thread = static_cast<unsigned>(item());
    if (thread >= items)
        return;
    const unsigned row = thread / parts_per_row;
    const Pair moments = state[row];
    Pair sum = {0, 0};
    for_places<4>(
        thread - row * parts_per_row, parts_per_row, packs,
        [&](unsigned pack) {
            return InputAndGradient<T, kWidth>{x[row * packs + pack], dy[row * packs + pack]};
        },
        [&](unsigned pack, const InputAndGradient<T, kWidth>& read) {
            const Pack<float, kWidth> scale = scales[pack];
            for (int k = 0; k < kWidth; ++k) {
                const float slope = real(read.dy.values[k]) * scale.values[k];
                sum.first += slope;
                sum.second += slope * (real(read.x.values[k]) - moments.first) * moments.second;
            }
        });
    parts[thread] = sum;
}

__global__ void finish_gradients(const Pair* __restrict__ parts, Pair* __restrict__ means, unsigned width,
                                 unsigned parts_per_row, unsigned rows) {
    const auto row = static_cast<unsigned>(item());
    if (row >= rows)
        return;
    const Means of_row = means_of(parts + row * parts_per_row, parts_per_row, width);
    means[row] = {static_cast<float>(of_row.first), static_cast<float>(of_row.second)};
}

template <class T, int kWidth>
__global__ void input_gradient(const Pack<T, kWidth>* __restrict__ x, const Pack<T, kWidth>* __restrict__ dy,
                               const Pair* __restrict__ state, const Pair* __restrict__ means,
                               const Pack<float, kWidth>* __restrict__ scales, Pack<T, kWidth>* __restrict__ dx,
                               unsigned packs, unsigned items) {
    const auto i = static_cast<unsigned>(item());
    if (i >= items)
        return;
    const unsigned row = i / packs;
    const Pair moments = state[row], mean = means[row];
    const Pack<float, kWidth> scale = scales[i - row * packs], values = reals(x[i]);
    Pack<float, kWidth> gradient = reals(dy[i]);
    for (int k = 0; k < kWidth; ++k) {
        const float normal = (values.values[k] - moments.first) * moments.second;
        const float slope = gradient.values[k] * scale.values[k];
        gradient.values[k] = moments.second * (slope - mean.first - normal * mean.second);
    }
    dx[i] = rounded<T>(gradient);
}

// Writes lines of the gradients of scale and shift: sums over the rows share, share + shares, ...
template <class T, int kWidth>
__global__ void sum_rows(const Pack<T, kWidth>* __restrict__ x, const Pack<T, kWidth>* __restrict__ dy,
                         const Pair* __restrict__ state, Pack<float, kWidth>* __restrict__ lines, unsigned packs,
                         unsigned shares, unsigned rows) {
    const auto thread = static_cast<unsigned>(item());
    if (thread >= packs * shares)
        return;
    const unsigned share = thread / packs, pack = thread - share * packs;
    Pack<float, kWidth> scale = {}, shift = {};
    for_places<4>(
        share, shares, rows,
        [&](unsigned row) {
            return InputAndGradient<T, kWidth>{x[row * packs + pack], dy[row * packs + pack]};
        },
        [&](unsigned row, const InputAndGradient<T, kWidth>& read) {
            const Pair moments = state[row];
            for (int k = 0; k < kWidth; ++k) {
                const float gradient = real(read.dy.values[k]);
                scale.values[k] += gradient * (real(read.x.values[k]) - moments.first) * moments.second;
                shift.values[k] += gradient;
            }
        });
    lines[2 * share * packs + pack] = scale;
    lines[(2 * share + 1) * packs + pack] = shift;
}

// weights: scale, shift, zeros. saved: mean and inverse deviation of every row.
template <class T, int kWidth>
class LayerNorm : public CudaLayer {
public:
    LayerNorm(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          width_(static_cast<unsigned>(layer.input.width)),
          packs_(width_ / kWidth),
          rows_(static_cast<unsigned>(samples * layer.input.height)),
          parts_(parts_of_row(packs_)),
          shares_(static_cast<unsigned>(shares_of_rows(rows_))) {
        assert(layer.input.channels == 1);
        check_items(samples * layer.input.elements());
        bytes_.weights = block_bytes(2 * std::int64_t{width_}, device.precision());
        bytes_.saved_until_input = pairs(rows_);
        rows_at_ = pairs(std::int64_t{rows_} * parts_);
        lines_at_ = rows_at_ + pairs(rows_);
        bytes_.scratch = lines_at_ + pairs(std::int64_t{shares_} * width_);
    }

    void forward(const LayerArgs& args, bool save) override {
        const cudaStream_t stream = device_.stream();
        Pair *parts = pairs(args.scratch), *state = pairs(save ? args.saved : args.scratch + rows_at_);
        launch(stream, rows_ * parts_, sum_moments<T, kWidth>, tensor(args.inputs[0]), parts, packs_, parts_,
               rows_ * parts_);
        launch(stream, rows_, finish_moments<T>, reinterpret_cast<const T*>(args.inputs[0]), parts, state, width_,
               parts_, rows_);
        launch(stream, rows_ * packs_, normalise<T, kWidth>, tensor(args.inputs[0]), state, planes(args.weights),
               tensor(args.output), packs_, rows_ * packs_);
    }

    void backward_input(const LayerArgs& args) override {
        const cudaStream_t stream = device_.stream();
        const auto *x = tensor(args.inputs[0]), *dy = tensor(args.output_gradient);
        const Pair* state = pairs(args.saved);
        std::byte* lines = args.scratch + lines_at_;
        launch(stream, packs_ * shares_, sum_rows<T, kWidth>, x, dy, state, planes(lines), packs_, shares_, rows_);
        sum_bias_gradient(stream, static_cast<const float*>(floats(lines)), floats(args.weight_gradient), shares_,
                          2 * std::int64_t{width_}, block_values(bytes_.weights, device_.precision()), args.accumulate);
        if (!args.input_gradients[0])
            return;
        Pair *parts = pairs(args.scratch), *means = pairs(args.scratch + rows_at_);
        launch(stream, rows_ * parts_, sum_gradients<T, kWidth>, x, dy, state, planes(args.weights), parts, packs_,
               parts_, rows_ * parts_);
        launch(stream, rows_, finish_gradients, parts, means, width_, parts_, rows_);
        launch(stream, rows_ * packs_, input_gradient<T, kWidth>, x, dy, state, means, planes(args.weights),
               tensor(args.input_gradients[0]), packs_, rows_ * packs_);
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        std::vector<float> block = values[0];
        block.insert(block.end(), values[1].begin(), values[1].end());
        load_block(block, weights, bytes_.weights);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        const std::vector<float> block = store_block(weights, 2 * std::int64_t{width_});
        return {{block.begin(), block.begin() + width_}, {block.begin() + width_, block.end()}};
    }

private:
    static auto tensor(auto* data) { return packs<T, kWidth>(data); }
    static auto planes(auto* data) { return packs<float, kWidth>(data); }
    static Pair* pairs(std::byte* data) { return reinterpret_cast<Pair*>(data); }
    static Bytes pairs(std::int64_t count) { return aligned(count * static_cast<Bytes>(sizeof(Pair))); }

    unsigned width_, packs_, rows_;
    unsigned parts_, shares_;           // threads per row; shares of all rows
    Bytes rows_at_ = 0, lines_at_ = 0;  // offsets in the scratch
};

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_layer_norm(GpuShare& device, const Layer& layer, int samples) {
    if (layer.input.width % kWidest<T> == 0)
        return std::make_unique<LayerNorm<T, kWidest<T>>>(device, layer, samples);
    return std::make_unique<LayerNorm<T, 1>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_layer_norm<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_layer_norm<Bf16>(GpuShare&, const Layer&, int);

}  // namespace pw::cuda
