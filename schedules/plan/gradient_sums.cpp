#include "schedules/plan/gradient_sums.h"

#include "schedules/plan/sum_groups.h"
#include "workloads/bounded.h"
#include "workloads/costs/sum_times.h"

#include <algorithm>
#include <set>
#include <utility>

namespace pw {

namespace {

std::vector<int> devices_of(const Shape& shape, const StageTie& tie) {
    std::set<int> devices;
    for (const int stage : {tie.from, tie.to})
        for (const int device : shape.devices_of(stage))
            devices.insert(device);
    return {devices.begin(), devices.end()};
}

bool is_of(const StageTie& tie, int stage) { return tie.from == stage || tie.to == stage; }

Ns part_of(Ns time, const std::vector<int>& holders) { return (time + std::ssize(holders) - 1) / std::ssize(holders); }

// Returns by how much a message lengthens a pass. The pass overlaps all buckets but one.
Ns exposed(Ns message, Ns pass, int buckets) {
    const Ns alone = message / buckets;
    return alone + std::max<Ns>(0, message - alone - (pass - pass / buckets));
}

// Lengthens passes by the messages of ZeRO-2 and 3.
void add_messages(StageCost& cost, Ns gather, Ns scatter, int buckets) {
    for (Ns StageCost::*const pass : {&StageCost::forward, &StageCost::recompute, &StageCost::backward,
                                      &StageCost::backward_input, &StageCost::backward_weight}) {
        const bool gathers = pass != &StageCost::backward_weight;
        const bool scatters = pass == &StageCost::backward || pass == &StageCost::backward_weight;
        const Ns computed = cost.*pass;
        if (computed > 0)
            cost.*pass += (gathers ? exposed(gather, computed, buckets) : 0) +
                          (scatters ? exposed(scatter, computed, buckets) : 0);
    }
    cost.pair.reset();  // was measured without messages
}

}  // namespace

void add_gradient_sums(Costs& costs, const Shape& shape, const std::vector<StageTie>& ties, SumAlgorithm algorithm) {
    costs.stage_sums.clear();
    costs.stage_gathers.clear();
    costs.exchanged.clear();
    for (int stage = 0; stage < shape.stages; ++stage) {
        const std::vector<int> holders = shape.devices_of(stage);
        const int zero = holders.size() > 1 ? costs.zero : 0;
        std::vector<SumRound> rounds =
            rounds_of(algorithm, holders, costs.cluster->host, zero > 0 ? SumPart::Scatter : SumPart::All);
        const Bytes weights = costs.bytes[stage].weights, held = weights + costs.bytes[stage].frozen;
        const Bytes gradients = held_of_weights(weights, weights, costs.kept, 0).gradients;
        const bool overlaps = costs.sum_bucket > 0 && may_overlap_sum(shape, stage);
        const int buckets = overlaps ? buckets_of(gradients, costs.sum_bucket) : 1;
        StageSum sum = timed_sum(in_buckets(rounds, buckets), gradients, *costs.cluster);
        sum.buckets = buckets;
        std::reverse(rounds.begin(), rounds.end());
        const StageSum gather = zero > 0 ? timed_sum(in_buckets(rounds, zero == 3 ? buckets : 1),
                                                     zero == 3 ? held : weights, *costs.cluster)
                                         : StageSum{};
        const Ns in_passes = zero >= 2 ? sum.alone : 0, gathered = zero == 3 ? gather.alone : 0;
        costs.stage_sums.push_back(zero >= 2 ? StageSum{gradients, {}, 0} : std::move(sum));
        costs.stage_gathers.push_back(zero == 1 || zero == 2 ? gather : StageSum{});
        if (costs.zero >= 2) {
            const auto at_once = [&](Bytes bytes) { return std::min(bytes, 2 * aligned(bytes / buckets)); };
            costs.exchanged.push_back({zero == 3 ? at_once(held) : 0, zero >= 2 ? at_once(gradients) : 0});
        }
        Ns time = costs.stage_sums.back().alone;
        for (const StageTie& tie : ties)
            if (is_of(tie, stage))
                time = bounded_sum(time, sum_among(devices_of(shape, tie), tie.bytes, *costs.cluster, algorithm).alone);
        for_each_make(costs, [&](MakeCosts& times) {
            for (std::vector<StageCost>* all : {&times.stage, &times.busy, &times.last, &times.busy_last}) {
                if (all->empty())
                    continue;
                StageCost& cost = (*all)[stage];
                if (zero >= 2) {
                    add_messages(cost, gathered, in_passes, buckets);
                    cost.accumulate = part_of(cost.accumulate, holders);  // to the gradients that a replica keeps
                }
                if (all == &times.last || all == &times.busy_last)
                    continue;
                cost.sum_gradients = time;
                cost.gather_weights = costs.stage_gathers.back().alone;
                if (zero > 0)
                    cost.update = part_of(cost.update, holders);
            }
        });
    }
}

}  // namespace pw
