// What a plan recomputes, and when.
#pragma once

#include <vector>

namespace pw {

struct Recomputation {
    std::vector<int> stages = {};  // ascending. Their F saves nothing, and R, recomputation, saves it again
    // Micro-batches of each window of a stage whose F does save: no R runs for them. A window is as many micro-batches
    // as the stage has in flight at most. Under 1F1B a window is the micro-batches of the warm-up and one more. This is
    // Megatron-LM's number of micro-batches with partial activation checkpoints.
    int saved = 0;
    // How many R of later backwards precede the first backward of their device, too. By costs: R run in idle time
    // (sim/early_recomputes.h). Passes leave each before its backward.
    static constexpr int kByCosts = -1;
    int ahead = 0;
    bool operator==(const Recomputation&) const = default;
};

}  // namespace pw
