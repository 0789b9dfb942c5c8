// Running averages of batch norm: at U, a thread per channel.
#include "exec/cuda/launch.h"
#include "exec/cuda/layers.h"

namespace pw::cuda {

namespace {

constexpr double kMomentum = 0.1;

// One channel of the blocks of a mini-batch.
struct Batches {
    const std::byte* const* blocks;
    const int* samples;
    int size;
    std::int64_t offset, channels, per_sample;

    __device__ double count(int k) const { return static_cast<double>(samples[k] * per_sample); }
    __device__ double mean(int k, std::int64_t channel) const { return static_cast<double>(values(k)[channel]); }
    __device__ double variance(int k, std::int64_t channel) const {
        return static_cast<double>(values(k)[channels + channel]);
    }
    __device__ const float* values(int k) const { return reinterpret_cast<const float*>(blocks[k] + offset); }
};

__device__ inline void average(float& running, double value) {
    running = static_cast<float>((1 - kMomentum) * static_cast<double>(running) + kMomentum * value);
}

__global__ void average_in_turn(Batches of, float* running) {
    const std::int64_t channel = item();
    if (channel >= of.channels)
        return;
    for (int k = 0; k < of.size; ++k) {
        average(running[channel], of.mean(k, channel));
        average(running[of.channels + channel], of.variance(k, channel));
    }
}

// Moments of the union of the micro-batches.
__global__ void average_as_one(Batches of, float* running) {
    const std::int64_t channel = item();
    if (channel >= of.channels)
        return;
    double count = 0, sum = 0, squares = 0;
    for (int k = 0; k < of.size; ++k) {
        count += of.count(k);
        sum += of.count(k) * of.mean(k, channel);
    }
    const double centre = sum / count;
    for (int k = 0; k < of.size; ++k) {
        const double off = of.mean(k, channel) - centre;
        squares += (of.count(k) - 1) * of.variance(k, channel) + of.count(k) * off * off;
    }
    average(running[channel], centre);
    average(running[of.channels + channel], count > 1 ? squares / (count - 1) : squares);
}

}  // namespace

void average_batches(cudaStream_t stream, const BatchStatistics& of, std::int64_t channels, std::int64_t per_sample,
                     float* running) {
    const Batches batches{of.blocks.data(), of.samples.data(), static_cast<int>(of.blocks.size()),
                          of.offset,        channels,          per_sample};
    launch(stream, channels, of.deferred ? average_as_one : average_in_turn, batches, running);
}

}  // namespace pw::cuda
