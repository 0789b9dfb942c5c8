// Batch norm with the statistics of the micro-batch (in evaluation with the running averages). A row is a pixel of a
// sample. Sums over the rows have two stages, each in a fixed order and with sizes that depend on the shape only:
// each thread sums a share of the rows, then each block of threads sums the shares of a few channels.
#include "exec/cuda/layers/adding.h"
#include "exec/cuda/layers/channel_sums.h"
#include "exec/cuda/layers/layers.h"
#include "exec/cuda/layers/norm_rows.h"
#include "exec/cuda/layers/packs.h"

#include <algorithm>
#include <cmath>

namespace pw::cuda {

namespace {

// dx = kFactor dy + kOffset + kSlope (x - mean)
enum FactorPlane { kFactor, kOffset, kSlope, kFactorPlanes };

// The launch bounds give the summing kernels enough registers for their reads ahead.

// Sums x - k and its square, where k is the channel's first value, so that a large mean does not spoil the
// variance.
template <class T, int kWidth>
__global__ void __launch_bounds__(kBlock, 1)
    sum_moments(const Pack<T, kWidth>* __restrict__ x, Pack<float, kWidth>* __restrict__ sums, Rows rows) {
    const auto thread = static_cast<unsigned>(item());
    if (thread >= rows.threads())
        return;
    const unsigned share = thread / rows.packs, pack = thread % rows.packs;
    const Pack<float, kWidth> first = reals(x[pack]);
    Pack<float, kWidth> sum = {}, squares = {};
    for_places<8>(
        share, rows.shares, rows.rows, [&](unsigned row) { return x[row * rows.packs + pack]; },
        [&](unsigned, const Pack<T, kWidth>& read) {
            const Pack<float, kWidth> values = reals(read);
            for (int k = 0; k < kWidth; ++k) {
                const float difference = values.values[k] - first.values[k];
                sum.values[k] += difference;
                squares.values[k] += difference * difference;
            }
        });
    sums[2 * share * rows.packs + pack] = sum;
    sums[(2 * share + 1) * rows.packs + pack] = squares;
}

template <class T, int kWidth>
struct InputAndGradient {
    Pack<T, kWidth> x, dy;
};

// Sums dy and dy (x - mean) over the elements that passed the ReLU.
template <class T, int kWidth>
__global__ void __launch_bounds__(kBlock, 1)
    sum_gradients(const Pack<T, kWidth>* __restrict__ x, const Pack<T, kWidth>* __restrict__ dy,
                  const Pack<float, kWidth>* __restrict__ state, Pack<float, kWidth>* __restrict__ sums, bool relu,
                  Rows rows) {
    const auto thread = static_cast<unsigned>(item());
    if (thread >= rows.threads())
        return;
    const unsigned share = thread / rows.packs, pack = thread % rows.packs;
    const Pack<float, kWidth> mean = state[kMean * rows.packs + pack], scale = state[kScale * rows.packs + pack],
                              shift = state[kShift * rows.packs + pack];
    Pack<float, kWidth> plain = {}, scaled = {};
    for_places<4>(
        share, rows.shares, rows.rows,
        [&](unsigned row) {
            const unsigned place = row * rows.packs + pack;
            return InputAndGradient<T, kWidth>{x[place], dy[place]};
        },
        [&](unsigned, const InputAndGradient<T, kWidth>& read) {
            const Pack<float, kWidth> values = reals(read.x), gradients = reals(read.dy);
            for (int k = 0; k < kWidth; ++k) {
                const float y = normal(values.values[k], mean.values[k], scale.values[k], shift.values[k]);
                const float gradient = relu && y <= 0 ? 0 : gradients.values[k];
                plain.values[k] += gradient;
                scaled.values[k] += gradient * (values.values[k] - mean.values[k]);
            }
        });
    sums[2 * share * rows.packs + pack] = plain;
    sums[(2 * share + 1) * rows.packs + pack] = scaled;
}

template <class T, int kWidth>
struct AddInput {
    Pack<T, kWidth> x, dy, more;
    unsigned passed;
};

// Does the same after the joined add has changed its gradient dy to dy + `more` for elements whose mask is 1, and
// to 0 for other elements. `more` and the mask may be null. A thread reads every pack before it writes it, so that
// `gradient` may be dy.
template <class T, int kWidth>
__global__ void __launch_bounds__(kBlock, 1)
    sum_joined_gradients(const Pack<T, kWidth>* __restrict__ x, const Pack<T, kWidth>* dy,
                         const Pack<T, kWidth>* __restrict__ more, const unsigned char* __restrict__ mask,
                         Pack<T, kWidth>* gradient, const Pack<float, kWidth>* __restrict__ state,
                         Pack<float, kWidth>* __restrict__ sums, Rows rows) {
    constexpr unsigned kPacksOfByte = 8 / kWidth;
    const auto thread = static_cast<unsigned>(item());
    if (thread >= rows.threads())
        return;
    const unsigned share = thread / rows.packs, pack = thread % rows.packs;
    const Pack<float, kWidth> mean = state[kMean * rows.packs + pack];
    Pack<float, kWidth> plain = {}, scaled = {};
    for_places<4>(
        share, rows.shares, rows.rows,
        [&](unsigned row) {
            const unsigned place = row * rows.packs + pack;
            AddInput<T, kWidth> read{x[place], dy[place], {}, 0xffu};
            if (more)
                read.more = more[place];
            if (mask)
                read.passed = mask[place / kPacksOfByte] >> place % kPacksOfByte * kWidth;
            return read;
        },
        [&](unsigned row, const AddInput<T, kWidth>& read) {
            Pack<T, kWidth> passed = read.dy;
            if (more)
                for (int k = 0; k < kWidth; ++k)
                    passed.values[k] = rounded<T>(real(read.dy.values[k]) + real(read.more.values[k]));
            keep_passed(passed, read.passed);
            gradient[row * rows.packs + pack] = passed;
            const Pack<float, kWidth> values = reals(read.x), gradients = reals(passed);
            for (int k = 0; k < kWidth; ++k) {
                plain.values[k] += gradients.values[k];
                scaled.values[k] += gradients.values[k] * (values.values[k] - mean.values[k]);
            }
        });
    sums[2 * share * rows.packs + pack] = plain;
    sums[(2 * share + 1) * rows.packs + pack] = scaled;
}

// Writes the state that normalise() reads. `parameters`: scale, shift.
__device__ inline void put_state(double mean, double variance, const float* __restrict__ parameters, unsigned channels,
                                 unsigned channel, float* __restrict__ state) {
    const double inverse = 1 / sqrt(variance + kNormEpsilon);
    state[kMean * channels + channel] = static_cast<float>(mean);
    state[kInverse * channels + channel] = static_cast<float>(inverse);
    state[kScale * channels + channel] = static_cast<float>(inverse * static_cast<double>(parameters[channel]));
    state[kShift * channels + channel] = parameters[channels + channel];
}

template <class T>
struct FirstRow {
    const T* values;
};

// `statistics`: mean, unbiased variance. May be null.
template <class T>
__global__ void finish_moments(FirstRow<T> first, Sums sums, const float* __restrict__ parameters,
                               float* __restrict__ state, float* __restrict__ statistics) {
    finish_channels(sums, [&](unsigned channel, const Pair& means) {
        const double mean = static_cast<double>(real(first.values[channel])) + means.first;
        const double difference = means.second - means.first * means.first;
        const double variance = difference < 0 ? 0 : difference;
        put_state(mean, variance, parameters, sums.channels, channel, state);
        if (statistics == nullptr)
            return;
        statistics[channel] = static_cast<float>(mean);
        statistics[sums.channels + channel] =
            static_cast<float>(sums.rows > 1 ? variance * sums.rows / (sums.rows - 1) : variance);
    });
}

__global__ void take_running(const float* __restrict__ running, const float* __restrict__ parameters, unsigned channels,
                             float* __restrict__ state) {
    const auto channel = static_cast<unsigned>(item());
    if (channel < channels)
        put_state(static_cast<double>(running[channel]), static_cast<double>(running[channels + channel]), parameters,
                  channels, channel, state);
}

// `gradient` may be null.
__global__ void finish_gradients(Sums sums, const float* __restrict__ state, const float* __restrict__ parameters,
                                 float* __restrict__ gradient, bool accumulate, float* __restrict__ factors) {
    finish_channels(sums, [&](unsigned channel, const Pair& means) {
        const auto inverse = static_cast<double>(state[kInverse * sums.channels + channel]);
        const double factor = static_cast<double>(parameters[channel]) * inverse;
        factors[kFactor * sums.channels + channel] = static_cast<float>(factor);
        factors[kOffset * sums.channels + channel] = static_cast<float>(-factor * means.first);
        factors[kSlope * sums.channels + channel] = static_cast<float>(-factor * inverse * inverse * means.second);
        if (gradient == nullptr)
            return;
        const auto scale = static_cast<float>(means.second * sums.rows * inverse);
        const auto shift = static_cast<float>(means.first * sums.rows);
        gradient[channel] = accumulate ? gradient[channel] + scale : scale;
        gradient[sums.channels + channel] = accumulate ? gradient[sums.channels + channel] + shift : shift;
    });
}

template <class T, int kWidth>
__global__ void normalise(const Pack<T, kWidth>* __restrict__ x, const Pack<float, kWidth>* __restrict__ state,
                          Pack<T, kWidth>* __restrict__ y, bool relu, Rows rows) {
    const auto thread = static_cast<unsigned>(item());
    if (thread >= rows.threads())
        return;
    const unsigned share = thread / rows.packs, pack = thread % rows.packs;
    const Pack<float, kWidth> mean = state[kMean * rows.packs + pack], scale = state[kScale * rows.packs + pack],
                              shift = state[kShift * rows.packs + pack];
    for_places<4>(
        share, rows.shares, rows.rows, [&](unsigned row) { return x[row * rows.packs + pack]; },
        [&](unsigned row, const Pack<T, kWidth>& read) {
            Pack<float, kWidth> values = reals(read);
            for (int k = 0; k < kWidth; ++k) {
                const float value = normal(values.values[k], mean.values[k], scale.values[k], shift.values[k]);
                values.values[k] = relu && value <= 0 ? 0 : value;
            }
            y[row * rows.packs + pack] = rounded<T>(values);
        });
}

template <class T, int kWidth>
__global__ void input_gradient(const Pack<T, kWidth>* __restrict__ x, const Pack<T, kWidth>* __restrict__ dy,
                               const Pack<float, kWidth>* __restrict__ state,
                               const Pack<float, kWidth>* __restrict__ factors, Pack<T, kWidth>* __restrict__ dx,
                               bool relu, Rows rows) {
    const auto thread = static_cast<unsigned>(item());
    if (thread >= rows.threads())
        return;
    const unsigned share = thread / rows.packs, pack = thread % rows.packs;
    const Pack<float, kWidth> mean = state[kMean * rows.packs + pack], scale = state[kScale * rows.packs + pack],
                              shift = state[kShift * rows.packs + pack], factor = factors[kFactor * rows.packs + pack],
                              offset = factors[kOffset * rows.packs + pack],
                              slope = factors[kSlope * rows.packs + pack];
    for_places<4>(
        share, rows.shares, rows.rows,
        [&](unsigned row) {
            const unsigned place = row * rows.packs + pack;
            return InputAndGradient<T, kWidth>{x[place], dy[place]};
        },
        [&](unsigned row, const InputAndGradient<T, kWidth>& read) {
            const Pack<float, kWidth> values = reals(read.x);
            Pack<float, kWidth> gradients = reals(read.dy);
            for (int k = 0; k < kWidth; ++k) {
                const float y = normal(values.values[k], mean.values[k], scale.values[k], shift.values[k]);
                const float gradient = relu && y <= 0 ? 0 : gradients.values[k];
                const float centred = values.values[k] - mean.values[k];
                gradients.values[k] = factor.values[k] * gradient + (offset.values[k] + slope.values[k] * centred);
            }
            dx[row * rows.packs + pack] = rounded<T>(gradients);
        });
}

// The number of threads that keep the memory of an H200 busy with eight packs each, while there are still few sums.
constexpr std::int64_t kSummers = 1 << 15;

Rows summing_rows(std::int64_t packs, std::int64_t rows) {
    const std::int64_t shares = std::clamp<std::int64_t>(kSummers / packs, 1, (rows + 7) / 8);
    return {static_cast<unsigned>(packs), static_cast<unsigned>(shares), static_cast<unsigned>(rows)};
}

// weights: scale, shift. statistics: mean, unbiased variance. saved: StatePlane.
template <class T, int kWidth>
class BatchNorm : public CudaLayer {
public:
    BatchNorm(GpuShare& device, const Layer& layer, int samples)
        : CudaLayer(device, layer, samples),
          channels_(layer.input.channels),
          rows_(std::int64_t{samples} * layer.input.height * layer.input.width),
          summing_(summing_rows(channels_ / kWidth, rows_)),
          writing_(writing_rows(channels_ / kWidth, rows_)) {
        check_items(rows_ * channels_ / kWidth);
        bytes_.weights = block_bytes(2 * channels_, device.precision());
        bytes_.statistics = planes_bytes(2);
        bytes_.saved_until_input = planes_bytes(kStatePlanes);
        bytes_.joins = channels_ % 8 == 0;  // whole bytes of an add's mask
        planes_at_ = planes_bytes(2 * summing_.shares);
        bytes_.scratch = planes_at_ + planes_bytes(std::max<int>(kStatePlanes, kFactorPlanes));
    }

    void forward(const LayerArgs& args, bool save) override {
        std::byte* state = save && args.saved != nullptr ? args.saved : args.scratch + planes_at_;
        if (save)
            take_moments(args, state);
        else
            launch(device_.stream(), channels_, take_running, floats(args.statistics), floats(args.weights),
                   static_cast<unsigned>(channels_), floats(state));
        if (args.output == nullptr)
            return;
        launch(device_.stream(), writing_threads(), normalise<T, kWidth>, tensor(args.inputs[0]), planes(state),
               tensor(args.output), layer_.relu, writing_);
    }

    void gather_statistics(const BatchStatistics& of, std::byte* running) override {
        average_batches(device_.stream(), of, channels_, rows_ / samples_, floats(running));
    }

    void backward_input(const LayerArgs& args) override {
        std::byte* factors = args.scratch + planes_at_;
        if (const JoinedAdd& add = args.joined; add.gradient != nullptr)
            launch(device_.stream(), summing_threads(), sum_joined_gradients<T, kWidth>, tensor(args.inputs[0]),
                   tensor(add.gradient), tensor(add.summand), reinterpret_cast<const unsigned char*>(add.saved),
                   tensor(add.gradient), planes(args.saved), planes(args.scratch), summing_);
        else
            launch(device_.stream(), summing_threads(), sum_gradients<T, kWidth>, tensor(args.inputs[0]),
                   tensor(args.output_gradient), planes(args.saved), planes(args.scratch), layer_.relu, summing_);
        if (args.weight_gradient != nullptr && !args.accumulate)
            clear_padding(floats(args.weight_gradient));
        launch(device_.stream(), finishing_threads(), finish_gradients, sums(args), floats(args.saved),
               floats(args.weights), floats(args.weight_gradient), args.accumulate, floats(factors));
        if (args.input_gradients[0])
            launch(device_.stream(), writing_threads(), input_gradient<T, kWidth>, tensor(args.inputs[0]),
                   tensor(args.output_gradient), planes(args.saved), planes(factors), tensor(args.input_gradients[0]),
                   layer_.relu, writing_);
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte* statistics) override {
        load_block(joined(values[0], values[1]), weights, bytes_.weights);
        std::vector<float> running = joined(values[2], values[3]);
        running.resize(static_cast<std::size_t>(bytes_.statistics) / sizeof(float));
        check(cudaMemcpyAsync(statistics, running.data(), running.size() * sizeof(float), cudaMemcpyHostToDevice,
                              device_.stream()),
              "cudaMemcpyAsync");
        check(cudaStreamSynchronize(device_.stream()), "cudaStreamSynchronize");
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte* statistics) const override {
        std::vector<std::vector<float>> all;
        for (const std::byte* pair : {weights, statistics}) {
            const std::vector<float> values = store_block(pair, 2 * channels_);
            all.emplace_back(values.begin(), values.begin() + channels_);
            all.emplace_back(values.begin() + channels_, values.end());
        }
        return all;
    }

private:
    static auto tensor(auto* data) { return packs<T, kWidth>(data); }
    static auto planes(auto* data) { return packs<float, kWidth>(data); }
    Bytes planes_bytes(std::int64_t count) const {
        return aligned(count * channels_ * static_cast<Bytes>(sizeof(float)));
    }
    std::int64_t summing_threads() const { return std::int64_t{summing_.packs} * summing_.shares; }
    std::int64_t finishing_threads() const { return round_up(channels_, kColumns) / kColumns * kBlock; }
    std::int64_t writing_threads() const { return std::int64_t{writing_.packs} * writing_.shares; }

    void take_moments(const LayerArgs& args, std::byte* state) const {
        launch(device_.stream(), summing_threads(), sum_moments<T, kWidth>, tensor(args.inputs[0]),
               planes(args.scratch), summing_);
        launch(device_.stream(), finishing_threads(), finish_moments<T>,
               FirstRow<T>{reinterpret_cast<const T*>(args.inputs[0])}, sums(args), floats(args.weights), floats(state),
               floats(args.statistics));
    }

    static std::vector<float> joined(std::vector<float> first, const std::vector<float>& second) {
        first.insert(first.end(), second.begin(), second.end());
        return first;
    }

    // The sums are at the start of the scratch.
    Sums sums(const LayerArgs& args) const {
        return {floats(args.scratch), static_cast<unsigned>(channels_), summing_.shares, static_cast<double>(rows_)};
    }

    // The update and the norm of the gradient use the whole block, padding included.
    void clear_padding(float* gradient) const {
        const std::int64_t used = 2 * channels_, all = block_values(bytes_.weights, device_.precision());
        if (all > used)
            check(cudaMemsetAsync(gradient + used, 0, static_cast<std::size_t>(all - used) * sizeof(float),
                                  device_.stream()),
                  "cudaMemsetAsync");
    }

    std::int64_t channels_, rows_;
    Rows summing_, writing_;
    Bytes planes_at_ = 0;  // offset in the scratch
};

}  // namespace

template <class T>
std::unique_ptr<LayerKernel> make_batch_norm(GpuShare& device, const Layer& layer, int samples) {
    if (layer.input.channels % kWidest<T> == 0)
        return std::make_unique<BatchNorm<T, kWidest<T>>>(device, layer, samples);
    return std::make_unique<BatchNorm<T, 1>>(device, layer, samples);
}
template std::unique_ptr<LayerKernel> make_batch_norm<float>(GpuShare&, const Layer&, int);
template std::unique_ptr<LayerKernel> make_batch_norm<Bf16>(GpuShare&, const Layer&, int);

}  // namespace pw::cuda
