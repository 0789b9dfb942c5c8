#include "exec/training/held_stage.h"

#include "schedules/plan/sum_groups.h"
#include "workloads/costs/sums.h"

#include <algorithm>

namespace pw {

Extent StageShare::bucket(int number_of_bucket) const {
    return share_of(all, static_cast<std::size_t>(buckets - 1 - number_of_bucket), static_cast<std::size_t>(buckets));
}

Extent StageShare::share_in(const Extent& bucket, std::size_t holder) const {
    return is_sharded ? common(bucket, share_of(all, holder, holders.size()))
                      : share_of(bucket, holder, holders.size());
}

// In a sharded stage a device needs the sums of its own part, of shared tables, whose copies are added later, and
// of the layers that it measures: a norm adds a layer's squares in one order, whatever the holders' parts are.
StageShare share_of_stage(const RunPlan& plan, const Layouts& layouts, int device, int stage, bool whole) {
    const Job& job = plan.job;
    const StageLayout& layout = layouts.full[stage];
    StageShare share;
    share.holders = job.plan.shape.devices_of(stage);
    share.number = static_cast<std::size_t>(std::ranges::find(share.holders, device) - share.holders.begin());
    share.all = {0, layout.weights};
    share.part = share_of(share.all, share.number, share.holders.size());
    share.is_sharded = is_sharded(job, stage);
    if (may_sum_in_buckets(job, stage))
        share.buckets = buckets_of(share.all.bytes, job.setup.sum_bucket);
    if (!share.is_sharded || whole) {
        share.needed = {share.all};
        return share;
    }
    const auto is_shared = [&](int layer) {
        return std::ranges::any_of(layouts.tables, [&](const SharedTable& table) {
            return std::ranges::find(table.layers, layer) != table.layers.end();
        });
    };
    for (const int layer : job.split.layers[stage])
        if (layouts.measurers[layer] == device || is_shared(layer))
            share.needed.push_back({layout.weight_offset[layer], layouts.bytes[layer].weights});
    return share;
}

}  // namespace pw
