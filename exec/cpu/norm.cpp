#include "exec/cpu/layers.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/parallel.h"
#include "exec/reference/running_averages.h"

#include <algorithm>
#include <cmath>

namespace pw::cpu {

namespace {

// Batch norm, one block of channels after the other: the second pass over a block is often served by the cache.
// weights: scale, shift. statistics: mean, unbiased variance (running_averages.h). saved: a NormState per block.
class BatchNorm : public CpuLayer {
public:
    BatchNorm(const Layer& layer, int samples, std::int64_t per_block)
        : CpuLayer(layer, samples, per_block), channels_(layer.input.channels) {
        const std::int64_t pixels = std::int64_t{layer.input.height} * layer.input.width;
        block_ = {samples, channels_ * pixels, pixels, per_block};
        count_ = static_cast<double>(samples * pixels);
        bytes_.weights = aligned(2 * channels_ * static_cast<Bytes>(sizeof(float)));
        bytes_.statistics = bytes_.weights;
        bytes_.saved_until_input = aligned(kStateValues * channels_ * static_cast<Bytes>(sizeof(float)));
    }

    void forward(const LayerArgs& args, bool save) override {
        for_blocks([&](std::int64_t b) {
            const std::int64_t first = b * block_.pixels * per_block_;
            const float* x = floats(args.inputs[0]) + first;
            double mean[kMostChannels], variance[kMostChannels];
            if (save)
                block_moments(x, block_, mean, variance);
            else
                read_running(args, b, mean, variance);
            alignas(64) float unsaved[kStateValues * kMostChannels];
            const NormState state = save && args.saved ? saved_state(args, b) : state_in(unsaved);
            const float* scale = floats(args.weights) + b * per_block_;
            for (std::int64_t l = 0; l < per_block_; ++l) {
                const double inverse = 1 / std::sqrt(variance[l] + kNormEpsilon);
                state.mean[l] = static_cast<float>(mean[l]);
                state.inverse[l] = static_cast<float>(inverse);
                state.scale[l] = static_cast<float>(inverse * static_cast<double>(scale[l]));
                state.shift[l] = scale[channels_ + l];
            }
            normalise_block(x, floats(args.output) + first, block_, state, layer_.relu);
            if (save && args.statistics)
                write_statistics(floats(args.statistics) + b * per_block_, mean, variance);
        });
    }

    void gather_statistics(const BatchStatistics& of, std::byte* running) override {
        reference::average_batches(of, channels_, block_.pixels, floats(running));
    }

    void backward_input(const LayerArgs& args) override {
        for_blocks([&](std::int64_t b) {
            const std::int64_t first = b * block_.pixels * per_block_;
            const float* x = floats(args.inputs[0]) + first;
            const float* dy = floats(args.output_gradient) + first;
            const NormState state = saved_state(args, b);
            double shift_sum[kMostChannels], scale_sum[kMostChannels];
            norm_gradient_sums(x, dy, block_, state, layer_.relu, shift_sum, scale_sum);
            if (args.weight_gradient)
                put_gradients(args, b, state, shift_sum, scale_sum);
            if (!args.input_gradients[0])
                return;
            alignas(64) float factor[kMostChannels], mean_dy[kMostChannels], slope[kMostChannels];
            const float* scale = floats(args.weights) + b * per_block_;
            for (std::int64_t l = 0; l < per_block_; ++l) {
                const auto inverse = static_cast<double>(state.inverse[l]);
                factor[l] = static_cast<float>(static_cast<double>(scale[l]) * inverse);
                mean_dy[l] = static_cast<float>(shift_sum[l] / count_);
                slope[l] = static_cast<float>(inverse * inverse * scale_sum[l] / count_);
            }
            norm_input_gradient(x, dy, floats(args.input_gradients[0]) + first, block_, state, layer_.relu, factor,
                                mean_dy, slope);
        });
    }

    void load(const std::vector<std::vector<float>>& values, std::byte* weights, std::byte* statistics) override {
        std::ranges::copy(values[0], floats(weights));
        std::ranges::copy(values[1], floats(weights) + channels_);
        std::ranges::copy(values[2], floats(statistics));
        std::ranges::copy(values[3], floats(statistics) + channels_);
    }

    std::vector<std::vector<float>> store(const std::byte* weights, const std::byte* statistics) const override {
        const float* w = floats(weights);
        const float* s = floats(statistics);
        return {{w, w + channels_},
                {w + channels_, w + 2 * channels_},
                {s, s + channels_},
                {s + channels_, s + 2 * channels_}};
    }

private:
    static constexpr std::int64_t kStateValues = 4;  // per channel

    NormState state_in(float* values) const {
        return {values, values + per_block_, values + 2 * per_block_, values + 3 * per_block_};
    }
    NormState saved_state(const LayerArgs& args, std::int64_t b) const {
        return state_in(floats(args.saved) + b * kStateValues * per_block_);
    }

    template <class Work>
    void for_blocks(Work work) const {
        in_shares(channels_ / per_block_, [&](std::int64_t first, std::int64_t count) {
            for (std::int64_t b = first; b < first + count; ++b)
                work(b);
        });
    }

    void put_gradients(const LayerArgs& args, std::int64_t b, const NormState& state, const double* shift_sum,
                       const double* scale_sum) const {
        float* gradient = floats(args.weight_gradient) + b * per_block_;
        for (std::int64_t l = 0; l < per_block_; ++l) {
            const auto scale = static_cast<float>(scale_sum[l] * static_cast<double>(state.inverse[l]));
            const auto shift = static_cast<float>(shift_sum[l]);
            gradient[l] = args.accumulate ? gradient[l] + scale : scale;
            gradient[channels_ + l] = args.accumulate ? gradient[channels_ + l] + shift : shift;
        }
    }

    void read_running(const LayerArgs& args, std::int64_t b, double* mean, double* variance) const {
        const float* running = floats(static_cast<const std::byte*>(args.statistics)) + b * per_block_;
        std::copy_n(running, per_block_, mean);
        std::copy_n(running + channels_, per_block_, variance);
    }

    void write_statistics(float* statistics, const double* mean, const double* variance) const {
        const double unbiased = count_ > 1 ? count_ / (count_ - 1) : 1;
        for (std::int64_t l = 0; l < per_block_; ++l) {
            statistics[l] = static_cast<float>(mean[l]);
            statistics[channels_ + l] = static_cast<float>(unbiased * variance[l]);
        }
    }

    std::int64_t channels_;
    Block block_;
    double count_;  // values per channel
};

}  // namespace

std::unique_ptr<LayerKernel> make_batch_norm(const Layer& layer, int samples, std::int64_t per_block) {
    if (!is_blocked(layer.input, per_block))
        return reference_kernels().make(layer, samples, false);  // NCHW, which is rare
    return std::make_unique<BatchNorm>(layer, samples, per_block);
}

extern const LayerRow kBatchNorm = row_of_blocks<make_batch_norm>(LayerKind::BatchNorm);

}  // namespace pw::cpu
