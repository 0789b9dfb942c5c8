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

// By how much the time of a task that computes differs from that of the costs, as a part of it: each of these is as
// likely as the others. A table of so many quantiles is what fits the nearest cache; beyond 3.7 standard deviations it
// knows nothing.
struct Jitter {
    static constexpr std::size_t kQuantiles = 4096;
    std::array<float, kQuantiles> deviations{};
    std::vector<StageSpread> spreads = {};  // by stage: what deviations are multiplied by; 1 when it is empty

    double scale(Op op, int stage) const;
};

// Returns deviations of a lognormal time with mean 1; sigma is the standard deviation of its logarithm.
Jitter lognormal_jitter(double sigma);
// Returns normal deviations with the spreads of every stage; no time becomes negative.
Jitter normal_jitter(std::vector<StageSpread> spreads);
// Reads "lognormal:0.05". Throws Error (BadInput) with what may be written.
Jitter read_jitter(std::string_view text);

struct Samples {
    std::vector<Ns> step_times;  // by draw
    std::vector<int> slowest;    // by device: the draws in which it was the first of the busiest
};

// Returns the time that no more than `part` of the draws, 0 to 1, are below: that of the nearest rank.
Ns quantile_of(const Samples& samples, double part);

}  // namespace pw
