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

}  // namespace

void add_gradient_sums(Costs& costs, const Shape& shape, const std::vector<StageTie>& ties, SumAlgorithm algorithm) {
    costs.stage_sums.clear();
    costs.stage_gathers.clear();
    for (int stage = 0; stage < shape.stages; ++stage) {
        const std::vector<int> holders = shape.devices_of(stage);
        const bool sharded = costs.shard_optimizer && holders.size() > 1;
        std::vector<SumRound> rounds =
            rounds_of(algorithm, holders, costs.cluster->host, sharded ? SumPart::Scatter : SumPart::All);
        const Bytes weights = costs.bytes[stage].weights;
        const Bytes gradients = training_bytes(weights, costs.optimizer).gradients;
        const bool overlaps = costs.sum_bucket > 0 && may_overlap_sum(shape, stage);
        const int buckets = overlaps ? buckets_of(gradients, costs.sum_bucket) : 1;
        StageSum& sum =
            costs.stage_sums.emplace_back(timed_sum(in_buckets(rounds, buckets), gradients, *costs.cluster));
        sum.buckets = buckets;
        Ns time = sum.alone;
        for (const StageTie& tie : ties)
            if (is_of(tie, stage))
                time = bounded_sum(time, sum_among(devices_of(shape, tie), tie.bytes, *costs.cluster, algorithm).alone);
        std::reverse(rounds.begin(), rounds.end());
        const StageSum& gather = costs.stage_gathers.emplace_back(
            sharded ? timed_sum(std::move(rounds), weights, *costs.cluster) : StageSum{});
        for_each_make(costs, [&](MakeCosts& times) {
            for (std::vector<StageCost>* all : {&times.stage, &times.busy}) {
                if (all->empty())
                    continue;
                StageCost& cost = (*all)[stage];
                cost.sum_gradients = time;
                cost.gather_weights = gather.alone;
                if (sharded)
                    cost.update = (cost.update + std::ssize(holders) - 1) / std::ssize(holders);
            }
        });
    }
}

}  // namespace pw
