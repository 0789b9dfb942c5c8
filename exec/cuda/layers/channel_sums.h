// The last stage of sums over the rows of a tensor: a block of threads adds up the shares of a few channels.
#pragma once

#include "exec/cuda/layers/packs.h"

namespace pw::cuda {

// Two sums of every channel, with a line of both for every share of the rows.
struct Sums {
    const float* sums;
    unsigned channels, shares;
    double rows;
};

struct Pair {
    double first, second;
};

constexpr unsigned kColumns = 4;  // channels per block of threads
// Calls finish(channel, means over the rows) in one thread per channel.
template <class Finish>
__device__ inline void finish_channels(const Sums& sums, Finish finish) {
    __shared__ double first[kBlock], second[kBlock];
    const auto channel_of = [](unsigned thread) { return blockIdx.x * kColumns + thread % kColumns; };
    for_own_threads([&](unsigned thread) {
        const unsigned channel = channel_of(thread);
        Pair total = {0, 0};
        for_places<8>(
            thread / kColumns, kBlock / kColumns, channel < sums.channels ? sums.shares : 0,
            [&](unsigned share) {
                const float* here = sums.sums + 2 * share * sums.channels + channel;
                return Pack<float, 2>{{here[0], here[sums.channels]}};
            },
            [&](unsigned, const Pack<float, 2>& read) {
                total.first += static_cast<double>(read.values[0]);
                total.second += static_cast<double>(read.values[1]);
            });
        first[thread] = total.first;
        second[thread] = total.second;
    });
    sum_threads(first, kColumns);
    sum_threads(second, kColumns);
    for_own_threads([&](unsigned thread) {
        if (const unsigned channel = channel_of(thread); thread < kColumns && channel < sums.channels)
            finish(channel, Pair{first[thread] / sums.rows, second[thread] / sums.rows});
    });
}

}  // namespace pw::cuda
