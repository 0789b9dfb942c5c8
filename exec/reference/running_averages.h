// The running averages of batch norm, for kernels on the host. Statistics are the means of all channels, followed
// by their unbiased variances.
#pragma once

#include "exec/kernels.h"

namespace pw::reference {

// The statistics of one channel, in the blocks of a mini-batch.
template <class Real>
class ChannelStatistics {
public:
    ChannelStatistics(const BatchStatistics& of, std::int64_t channels, std::int64_t channel, std::int64_t per_sample)
        : of_(of), channels_(channels), channel_(channel), per_sample_(per_sample) {}

    std::size_t size() const { return of_.blocks.size(); }
    double count(std::size_t k) const { return static_cast<double>(of_.samples[k] * per_sample_); }
    double mean(std::size_t k) const { return static_cast<double>(block(k)[channel_]); }
    double variance(std::size_t k) const { return static_cast<double>(block(k)[channels_ + channel_]); }

private:
    const Real* block(std::size_t k) const { return reinterpret_cast<const Real*>(of_.blocks[k] + of_.offset); }

    const BatchStatistics& of_;
    std::int64_t channels_, channel_, per_sample_;
};

template <class Real>
void average(Real& running, double value) {
    constexpr double kMomentum = 0.1;
    running = static_cast<Real>((1 - kMomentum) * static_cast<double>(running) + kMomentum * value);
}

// Updates the averages with the moments of the union of the micro-batches.
template <class Real>
void average_as_one(const ChannelStatistics<Real>& of, Real& mean, Real& variance) {
    double count = 0, sum = 0, squares = 0;
    for (std::size_t k = 0; k < of.size(); ++k) {
        count += of.count(k);
        sum += of.count(k) * of.mean(k);
    }
    const double centre = sum / count;
    for (std::size_t k = 0; k < of.size(); ++k) {
        const double off = of.mean(k) - centre;
        squares += (of.count(k) - 1) * of.variance(k) + of.count(k) * off * off;
    }
    average(mean, centre);
    average(variance, count > 1 ? squares / (count - 1) : squares);
}

// Updates the running averages with a mini-batch. `per_sample` is the number of values of a channel in a sample.
template <class Real>
void average_batches(const BatchStatistics& of, std::int64_t channels, std::int64_t per_sample, Real* running) {
    for (std::int64_t channel = 0; channel < channels; ++channel) {
        const ChannelStatistics<Real> statistics(of, channels, channel, per_sample);
        Real &mean = running[channel], &variance = running[channels + channel];
        if (of.deferred) {
            average_as_one(statistics, mean, variance);
            continue;
        }
        for (std::size_t k = 0; k < statistics.size(); ++k) {
            average(mean, statistics.mean(k));
            average(variance, statistics.variance(k));
        }
    }
}

}  // namespace pw::reference
