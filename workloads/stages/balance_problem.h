// A chain of layers, and stages of which a device holds several.
#pragma once

#include "workloads/stages/device_balance.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace pw {

// The longest device comes first, then the longest stage.
using Length = std::pair<double, double>;

// `cuts` has the first layer of every stage, and the number of layers at its end.
struct BalanceProblem {
    BalanceProblem(const std::vector<Ns>& time, const StageHolders& all)
        : holders(all), stages(static_cast<int>(all.device_of.size())), layers(static_cast<int>(time.size())) {
        sums.push_back(0);
        for (const Ns one : time)
            sums.push_back(sums.back() + static_cast<double>(one));
        stages_of.resize(all.speed.size());
        for (int stage = 0; stage < stages; ++stage)
            stages_of[static_cast<std::size_t>(all.device_of[stage])].push_back(stage);
    }
    double work(int from, int to) const { return sums[to] - sums[from]; }
    double time_on(int device, double work) const { return work / holders.speed[device]; }
    // The last possible end of a stage, so that no later one is empty.
    int latest_end(int stage) const { return layers - (stages - 1 - stage); }

    const StageHolders& holders;
    int stages, layers;
    std::vector<double> sums;                 // work of the layers before each
    std::vector<std::vector<int>> stages_of;  // by device
};

struct Work {
    std::vector<double> stage, device;
};

inline Work work_of(const BalanceProblem& problem, const std::vector<int>& cuts) {
    Work work{{}, std::vector<double>(problem.holders.speed.size(), 0)};
    for (int stage = 0; stage < problem.stages; ++stage) {
        work.stage.push_back(problem.work(cuts[stage], cuts[stage + 1]));
        work.device[static_cast<std::size_t>(problem.holders.device_of[stage])] += work.stage.back();
    }
    return work;
}

inline Length length_of(const BalanceProblem& problem, const Work& work) {
    Length length{0, 0};
    for (int device = 0; device < static_cast<int>(work.device.size()); ++device)
        length.first = std::max(length.first, problem.time_on(device, work.device[device]));
    for (int stage = 0; stage < problem.stages; ++stage)
        length.second = std::max(length.second, problem.time_on(problem.holders.device_of[stage], work.stage[stage]));
    return length;
}

}  // namespace pw
