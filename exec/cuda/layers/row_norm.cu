// Layer norm and RMS norm: a row is a token. A few threads sum over a row, in a fixed order. Sums over the rows are
// made in shares of the rows.
#include "exec/cuda/layers/layers.h"
#include "exec/cuda/layers/linear_loops.h"
#include "exec/cuda/layers/softmax.h"

#include <cassert>

namespace pw::cuda {

namespace {

struct Pair {
    float first, second;
};

// What F keeps of a row: the mean and the inverse deviation, or, without a mean, the inverse of the root mean square.
template <bool kHasMean>
struct Moments {
    float mean, inverse;
    __device__ float centred(float x) const { return x - mean; }
};
template <>
struct Moments<false> {
    float inverse;
    __device__ float centred(float x) const { return x; }
};

// Sums x - k and its square, where k is the row's first value, so that a large mean does not spoil the variance.
// Without a mean k is 0.
template <class T, int kWidth, bool kHasMean>
__global__ void sum_moments(const Pack<T, kWidth>* __restrict__ x, Pair* __restrict__ parts, unsigned packs,
                            unsigned parts_per_row, unsigned items) {
    const auto thread = static_cast<unsigned>(item());
    if (thread >= items)
        return;
    const unsigned row = thread / parts_per_row;
    const Pack<T, kWidth>* values = x + row * packs;
    const float first = kHasMean ? real(values[0].values[0]) : 0;
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

template <class T, bool kHasMean>
__global__ void finish_moments(const T* __restrict__ x, const Pair* __restrict__ parts,
                               Moments<kHasMean>* __restrict__ state, unsigned width, unsigned parts_per_row,
                               unsigned rows) {
    const auto row = static_cast<unsigned>(item());
    if (row >= rows)
        return;
    const Means means = means_of(parts + row * parts_per_row, parts_per_row, width);
    const auto inverse = [](double square) { return static_cast<float>(1 / sqrt(square + kNormEpsilon)); };
    if constexpr (kHasMean) {
        const double difference = means.second - means.first * means.first;
        state[row] = {static_cast<float>(static_cast<double>(real(x[row * width])) + means.first),
                      inverse(difference < 0 ? 0 : difference)};
    } else {
        state[row] = {inverse(means.second)};
    }
}

// parameters: scale, and with a mean also shift.
template <class T, int kWidth, bool kHasMean>
__global__ void normalise(const Pack<T, kWidth>* __restrict__ x, const Moments<kHasMean>* __restrict__ state,
                          const Pack<float, kWidth>* __restrict__ parameters, Pack<T, kWidth>* __restrict__ y,
                          unsigned packs, unsigned items) {
    const auto i = static_cast<unsigned>(item());
    if (i >= items)
        return;
    const unsigned row = i / packs, pack = i - row * packs;
    const Moments<kHasMean> moments = state[row];
    const Pack<float, kWidth> scale = parameters[pack];
    const Pack<float, kWidth> shift = kHasMean ? parameters[packs + pack] : Pack<float, kWidth>{};
    Pack<float, kWidth> values = reals(x[i]);
    for (int k = 0; k < kWidth; ++k)
        values.values[k] = moments.centred(values.values[k]) * moments.inverse * scale.values[k] + shift.values[k];
    y[i] = rounded<T>(values);
}

template <class T, int kWidth>
struct InputAndGradient {
    Pack<T, kWidth> x, dy;
};

// Sums the gradient times the scale, and this product times the normalised value.
template <class T, int kWidth, bool kHasMean>
__global__ void sum_gradients(const Pack<T, kWidth>* __restrict__ x, const Pack<T, kWidth>* __restrict__ dy,
                              const Moments<kHasMean>* __restrict__ state,
                              const Pack<float, kWidth>* __restrict__ scales, Pair* __restrict__ parts, unsigned packs,
                              unsigned parts_per_row, unsigned items) {
    const auto thread = static_cast<unsigned>(item());
    if (thread >= items)
        return;
    const unsigned row = thread / parts_per_row;
    const Moments<kHasMean> moments = state[row];
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
                sum.second += slope * moments.centred(real(read.x.values[k])) * moments.inverse;
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

template <class T, int kWidth, bool kHasMean>
__global__ void input_gradient(const Pack<T, kWidth>* __restrict__ x, const Pack<T, kWidth>* __restrict__ dy,
                               const Moments<kHasMean>* __restrict__ state, const Pair* __restrict__ means,
                               const Pack<float, kWidth>* __restrict__ scales, Pack<T, kWidth>* __restrict__ dx,
                               unsigned packs, unsigned items) {
    const auto i = static_cast<unsigned>(item());
    if (i >= items)
        return;
    const unsigned row = i / packs;
    const Moments<kHasMean> moments = state[row];
    const Pair mean = means[row];
    const float of_slopes = kHasMean ? mean.first : 0;
    const Pack<float, kWidth> scale = scales[i - row * packs], values = reals(x[i]);
    Pack<float, kWidth> gradient = reals(dy[i]);
    for (int k = 0; k < kWidth; ++k) {
        const float normal = moments.centred(values.values[k]) * moments.inverse;
        const float slope = gradient.values[k] * scale.values[k];
        gradient.values[k] = moments.inverse * (slope - of_slopes - normal * mean.second);
    }
    dx[i] = rounded<T>(gradient);
}

// Writes lines of the gradients of the parameters: sums over the rows share, share + shares, ...
template <class T, int kWidth, bool kHasMean>
__global__ void sum_rows(const Pack<T, kWidth>* __restrict__ x, const Pack<T, kWidth>* __restrict__ dy,
                         const Moments<kHasMean>* __restrict__ state, Pack<float, kWidth>* __restrict__ lines,
                         unsigned packs, unsigned shares, unsigned rows) {
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
            const Moments<kHasMean> moments = state[row];
            for (int k = 0; k < kWidth; ++k) {
                const float gradient = real(read.dy.values[k]);
                scale.values[k] += gradient * moments.centred(real(read.x.values[k])) * moments.inverse;
                shift.values[k] += gradient;
            }
        });
    const unsigned line = (kHasMean ? 2 : 1) * share;
    lines[line * packs + pack] = scale;
    if (kHasMean)
        lines[(line + 1) * packs + pack] = shift;
}

// weights: scale, shift if there is a mean, zeros. saved: the moments of every row.
template <class T, int kWidth, bool kHasMean>
class RowNorm : public CudaLayer {
public:
    RowNorm(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          width_(static_cast<unsigned>(layer.input.width)),
          packs_(width_ / kWidth),
          rows_(static_cast<unsigned>(samples * layer.input.height)),
          parts_(parts_of_row(packs_)),
          shares_(static_cast<unsigned>(shares_of_rows(rows_))) {
        assert(layer.input.channels == 1);
        check_items(samples * layer.input.elements());
        bytes_.weights = block_bytes(parameters(), device.precision());
        bytes_.saved_until_input = bytes_of<State>(rows_);
        rows_at_ = bytes_of<Pair>(std::int64_t{rows_} * parts_);
        lines_at_ = rows_at_ + bytes_of<Pair>(rows_);
        bytes_.scratch = lines_at_ + bytes_of<float>(shares_ * parameters());
    }

    void forward(const LayerArgs& args, bool save) override {
        const cudaStream_t stream = device_.stream();
        Pair* parts = pairs(args.scratch);
        auto* state = reinterpret_cast<State*>(save ? args.saved : args.scratch + rows_at_);
        launch(stream, rows_ * parts_, sum_moments<T, kWidth, kHasMean>, tensor(args.inputs[0]), parts, packs_, parts_,
               rows_ * parts_);
        launch(stream, rows_, finish_moments<T, kHasMean>, reinterpret_cast<const T*>(args.inputs[0]), parts, state,
               width_, parts_, rows_);
        launch(stream, rows_ * packs_, normalise<T, kWidth, kHasMean>, tensor(args.inputs[0]), state,
               planes(args.weights), tensor(args.output), packs_, rows_ * packs_);
    }

    void backward_input(const LayerArgs& args) override {
        const cudaStream_t stream = device_.stream();
        const auto *x = tensor(args.inputs[0]), *dy = tensor(args.output_gradient);
        const auto* state = reinterpret_cast<const State*>(args.saved);
        if (args.weight_gradient != nullptr) {
            std::byte* lines = args.scratch + lines_at_;
            launch(stream, packs_ * shares_, sum_rows<T, kWidth, kHasMean>, x, dy, state, planes(lines), packs_,
                   shares_, rows_);
            sum_bias_gradient(stream, static_cast<const float*>(floats(lines)), floats(args.weight_gradient), shares_,
                              parameters(), block_values(bytes_.weights, device_.precision()), args.accumulate);
        }
        if (!args.input_gradients[0])
            return;
        Pair *parts = pairs(args.scratch), *means = pairs(args.scratch + rows_at_);
        launch(stream, rows_ * parts_, sum_gradients<T, kWidth, kHasMean>, x, dy, state, planes(args.weights), parts,
               packs_, parts_, rows_ * parts_);
        launch(stream, rows_, finish_gradients, parts, means, width_, parts_, rows_);
        launch(stream, rows_ * packs_, input_gradient<T, kWidth, kHasMean>, x, dy, state, means, planes(args.weights),
               tensor(args.input_gradients[0]), packs_, rows_ * packs_);
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte*) override {
        std::vector<float> block;
        for (const std::vector<float>& each : values)
            block.insert(block.end(), each.begin(), each.end());
        load_block(block, weights, bytes_.weights);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte*) const override {
        const std::vector<float> block = store_block(weights, parameters());
        std::vector<std::vector<float>> values;
        for (auto first = block.begin(); first != block.end(); first += width_)
            values.emplace_back(first, first + width_);
        return values;
    }

private:
    using State = Moments<kHasMean>;

    std::int64_t parameters() const { return (kHasMean ? 2 : 1) * std::int64_t{width_}; }
    static auto tensor(auto* data) { return packs<T, kWidth>(data); }
    static auto planes(auto* data) { return packs<float, kWidth>(data); }
    static Pair* pairs(std::byte* data) { return reinterpret_cast<Pair*>(data); }
    template <class Value>
    static Bytes bytes_of(std::int64_t count) {
        return aligned(count * static_cast<Bytes>(sizeof(Value)));
    }

    unsigned width_, packs_, rows_;
    unsigned parts_, shares_;           // threads per row, shares of all rows
    Bytes rows_at_ = 0, lines_at_ = 0;  // offsets in the scratch
};

template <class T, int kWidth>
std::unique_ptr<LayerKernel> make_of_width(GpuShare& device, const Layer& layer, int samples) {
    if (layer.kind == LayerKind::RmsNorm)
        return std::make_unique<RowNorm<T, kWidth, false>>(device, layer, samples);
    return std::make_unique<RowNorm<T, kWidth, true>>(device, layer, samples);
}

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_row_norm(GpuShare& device, const Layer& layer, int samples) {
    return layer.input.width % kWidest<T> == 0 ? make_of_width<T, kWidest<T>>(device, layer, samples)
                                               : make_of_width<T, 1>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_row_norm<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_row_norm<Bf16>(GpuShare&, const Layer&, int);

}  // namespace pw::cuda
