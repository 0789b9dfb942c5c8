#include "workloads/costs/slices.h"

#include <algorithm>
#include <cmath>

namespace pw {

namespace {

// The share of a slice in a time of which attention is a part.
double share_of_time(Ns all, Ns attention, double begin, double end) {
    const double even = end - begin, seen = end * end - begin * begin;
    return all == 0 ? even : even + (seen - even) * static_cast<double>(attention) / static_cast<double>(all);
}

// Returns the x for which (1 - attention) x + attention x^2 is `part`.
double begin_of_rest(double part, double attention) {
    const double plain = 1 - attention;
    return 2 * part / (plain + std::sqrt(plain * plain + 4 * attention * part));
}

}  // namespace

SliceEnds slice_ends(int slices, double attention, int tokens, int grain) {
    const double least = tokens > 0 ? static_cast<double>(grain) / tokens : 0;
    SliceEnds ends;
    for (int slice = 1; slice < slices; ++slice) {
        double end = begin_of_rest(static_cast<double>(slice) / slices, attention);
        if (tokens > 0)
            end = std::clamp(std::round(end / least) * least, (ends.empty() ? 0 : ends.back()) + least,
                             1 - (slices - slice) * least);
        ends.push_back(end);
    }
    ends.push_back(1);
    return ends;
}

double attention_part(const Costs& costs) {
    double attention = 0, all = 0;
    for (std::size_t stage = 0; stage < costs.attention.size(); ++stage)
        for (Ns StageCost::*const time :
             {&StageCost::forward, &StageCost::backward_input, &StageCost::backward_weight}) {
            attention += static_cast<double>(costs.attention[stage].*time);
            all += static_cast<double>(costs.stage[stage].*time);
        }
    return all > 0 ? attention / all : 0;
}

void cut_in_slices(Costs& costs, const SliceEnds& ends) {
    costs.slices.clear();
    if (ends.size() == 1)
        return;
    double begin = 0;
    for (const double end : ends) {
        std::vector<MicroBatchLength>& stages = costs.slices.emplace_back();
        for (std::size_t stage = 0; stage < costs.stage.size(); ++stage) {
            const StageCost& all = costs.stage[stage];
            const StageCost attention = costs.attention.empty() ? StageCost{} : costs.attention[stage];
            const auto share = [&](Ns StageCost::*time) {
                return share_of_time(all.*time, attention.*time, begin, end);
            };
            stages.push_back({share(&StageCost::forward), share(&StageCost::backward_input),
                              share(&StageCost::backward_weight), end - begin});
        }
        begin = end;
    }
}

}  // namespace pw
