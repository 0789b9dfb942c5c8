#include "workloads/costs/spreads.h"

#include <cmath>
#include <cstdlib>
#include <iterator>

namespace pw {

namespace {

constexpr double kDeciles = 2.5631031310892007;  // from the 10 % to the 90 % quantile of a normal time, in deviations

const LayerTimes* nearest(const LayerProfile& layer, int samples) {
    const LayerTimes* found = nullptr;
    int distance = 0;
    for (const auto& [size, times] : layer.times)
        if (const int away = std::abs(size - samples); !found || away < distance) {
            found = &times;
            distance = away;
        }
    return found;
}

}  // namespace

std::vector<StageSpread> spreads_of(const StageSplit& split, const Profile& profile, int samples) {
    std::vector<StageSpread> spreads;
    for (const std::vector<int>& layers : split.layers) {
        const auto relative = [&](Measured LayerTimes::*part) {
            double variance = 0, time = 0;
            for (const int layer : layers)
                if (const LayerTimes* times = nearest(profile.layers[static_cast<std::size_t>(layer)], samples)) {
                    const double deviation = static_cast<double>((times->*part).spread) / kDeciles;
                    variance += deviation * deviation;
                    time += static_cast<double>((times->*part).median);
                }
            return time > 0 ? std::sqrt(variance) / time : 0;
        };
        spreads.push_back({relative(&LayerTimes::forward), relative(&LayerTimes::backward),
                           relative(&LayerTimes::backward_input), relative(&LayerTimes::backward_weight),
                           relative(&LayerTimes::recompute)});
    }
    return spreads;
}

}  // namespace pw
