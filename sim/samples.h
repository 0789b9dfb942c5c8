// Step times under chance: the tasks of a plan take longer or shorter from draw to draw.
#pragma once

#include "schedules/plan/task.h"
#include "workloads/costs/spreads.h"
#include "workloads/units.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// The relative deviations of the time of a task that computes from its cost. All are equally likely. A table of this
// many quantiles fits the nearest cache. It ends at 3.7 standard deviations.
struct Jitter {
    static constexpr std::size_t kQuantiles = 4096;
    std::array<float, kQuantiles> deviations{};
    std::vector<StageSpread> spreads = {};  // by stage: factors of the deviations, or 1 if empty

    double scale(Op op, int stage) const;
};

// Returns deviations of a lognormal time with mean 1. sigma is the standard deviation of its logarithm.
Jitter lognormal_jitter(double sigma);
// Returns normal deviations with the spreads of every stage. No time becomes negative.
Jitter normal_jitter(std::vector<StageSpread> spreads);
// Reads "lognormal:0.05". Throws Error (BadInput) with the accepted forms.
Jitter read_jitter(std::string_view text);

struct Samples {
    std::vector<Ns> step_times;  // by draw
    std::vector<int> slowest;    // by device: the draws in which it was the first of the busiest
};

// Returns the time that no more than `part` of the draws, 0 to 1, are below: the time of the nearest rank.
Ns quantile_of(const Samples& samples, double part);

}  // namespace pw
