// Stages whose passes take random times, for exhaustive searches.
#pragma once

#include "tests/support/dice.h"
#include "workloads/costs/costs.h"

#include <array>
#include <vector>

namespace pw {

// Gives every stage an F, an I and a W of 1 to 9 ns. Returns their times by stage.
inline std::vector<std::array<Ns, 3>> draw_passes(Random& random, Costs& costs) {
    std::vector<std::array<Ns, 3>> all;
    for (StageCost& stage : costs.stage) {
        const Ns forward = pick(random, 1, 9), input = pick(random, 1, 9), weight = pick(random, 1, 9);
        stage.forward = forward;
        stage.backward_input = input;
        stage.backward_weight = weight;
        stage.backward = input + weight;
        all.push_back({forward, input, weight});
    }
    return all;
}

}  // namespace pw
