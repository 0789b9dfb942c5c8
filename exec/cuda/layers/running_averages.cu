// The running averages of batch norm. U, the optimizer update, updates them with a thread per channel.
#include "exec/cuda/layers/launch.h"
#include "exec/cuda/layers/layers.h"

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

__device__ inline void take_in_turn(const Batches& of, std::int64_t channel, float* running) {
    for (int k = 0; k < of.size; ++k) {
        average(running[channel], of.mean(k, channel));
        average(running[of.channels + channel], of.variance(k, channel));
    }
}

// Updates the averages with the moments of the union of the micro-batches.
__device__ inline void take_as_one(const Batches& of, std::int64_t channel, float* running) {
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

__device__ inline void take_in(const Batches& of, bool deferred, std::int64_t channel, float* running) {
    if (channel < of.channels)
        deferred ? take_as_one(of, channel, running) : take_in_turn(of, channel, running);
}

__global__ void average_layer(Batches of, bool deferred, float* running) { take_in(of, deferred, item(), running); }

__global__ void average_layers(const AveragedChannels* list, Batches of, bool deferred, std::byte* running) {
    const AveragedChannels part = list[blockIdx.x];
    of.offset = part.at;
    of.channels = part.channels;
    of.per_sample = part.per_sample;
    take_in(of, deferred, part.first + threadIdx.x, reinterpret_cast<float*>(running + part.at));
}

Batches batches(const BatchStatistics& of, std::int64_t channels, std::int64_t per_sample) {
    return {of.blocks.data(), of.samples.data(), static_cast<int>(of.blocks.size()), of.offset, channels, per_sample};
}

}  // namespace

void average_batches(cudaStream_t stream, const BatchStatistics& of, std::int64_t channels, std::int64_t per_sample,
                     float* running) {
    launch(stream, channels, average_layer, batches(of, channels, per_sample), of.deferred, running);
}

void average_batches(cudaStream_t stream, const BatchStatistics& of, const AveragedChannels* list, std::int64_t entries,
                     std::byte* running) {
    launch(stream, entries * kBlock, average_layers, list, batches(of, 0, 0), of.deferred, running);
}

}  // namespace pw::cuda
