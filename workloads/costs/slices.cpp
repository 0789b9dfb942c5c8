#include "workloads/costs/slices.h"

namespace pw {

namespace {

// The share of a slice in a time of which attention is a part.
double share_of_time(Ns all, Ns attention, int slice, int slices) {
    const double even = 1.0 / slices, seen = (2.0 * slice + 1) / slices / slices;
    return all == 0 ? even : even + (seen - even) * static_cast<double>(attention) / static_cast<double>(all);
}

}  // namespace

void cut_in_slices(Costs& costs, int slices) {
    costs.slices.clear();
    for (int slice = 0; slices > 1 && slice < slices; ++slice) {
        std::vector<MicroBatchLength>& stages = costs.slices.emplace_back();
        for (std::size_t stage = 0; stage < costs.stage.size(); ++stage) {
            const StageCost& all = costs.stage[stage];
            const StageCost attention = costs.attention.empty() ? StageCost{} : costs.attention[stage];
            const auto share = [&](Ns StageCost::*time) {
                return share_of_time(all.*time, attention.*time, slice, slices);
            };
            stages.push_back({share(&StageCost::forward), share(&StageCost::backward_input),
                              share(&StageCost::backward_weight), 1.0 / slices});
        }
    }
}

}  // namespace pw
