// The memory of a training, planned when all devices are prepared: the bytes of its layers, and their layout.
#include "exec/training/layouts.h"

#include "exec/training/training.h"
#include "job/build.h"
#include "schedules/plan/sum_groups.h"
#include "workloads/error.h"
#include "workloads/stages/ties.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace pw {

bool is_sharded(const Job& job, int stage) {
    return job.setup.training.zero > 0 && job.plan.shape.devices_of(stage).size() > 1;
}

bool may_sum_in_buckets(const Job& job, int stage) {
    return job.setup.sum_bucket > 0 && may_overlap_sum(job.plan.shape, stage);
}

std::vector<int> measurers_of(const Job& job, const std::vector<StageLayout>& layouts) {
    std::vector<int> measurers;
    for (std::size_t layer = 0; layer < job.split.stage_of.size(); ++layer) {
        const int stage = job.split.stage_of[layer];
        const std::vector<int> holders = job.plan.shape.devices_of(stage);
        const StageLayout& layout = layouts[stage];
        std::size_t number = 0;
        while (is_sharded(job, stage) && number + 1 < holders.size() &&
               share_of({0, layout.weights}, number, holders.size()).end() <= layout.weight_offset[layer])
            ++number;
        measurers.push_back(holders[number]);
    }
    return measurers;
}

std::vector<SharedTable> shared_tables(const Job& job, const std::vector<LayerBytes>& bytes) {
    std::map<int, SharedTable> by_owner;
    for (const Tie& tie : ties_of(job.model->layers)) {
        if (job.model->layers[tie.table].frozen)
            continue;
        SharedTable& table = by_owner.try_emplace(tie.table, SharedTable{{tie.table}, {}, {}, 0}).first->second;
        table.layers.push_back(tie.reader);
        table.bytes = bytes[tie.table].weights;
        if (bytes[tie.reader].weights != table.bytes)
            fail_with(ExitCode::RunFailed, "layers '{}' and '{}' share a table, but their blocks differ in size",
                      job.model->layers[tie.table].name, job.model->layers[tie.reader].name);
    }
    std::vector<SharedTable> all;
    for (auto& [owner, table] : by_owner) {
        std::map<int, int> nearest;  // device -> layer
        for (const int layer : table.layers)
            for (const int device : job.plan.shape.devices_of(job.split.stage_of[layer]))
                nearest.try_emplace(device, layer);
        for (const auto& [device, layer] : nearest) {
            table.devices.push_back(device);
            table.nearest.push_back(layer);
        }
        all.push_back(std::move(table));
    }
    return all;
}

std::vector<LayerBytes> Training::layer_bytes(bool last) const {
    std::vector<LayerBytes> bytes;
    for (int layer = 0; layer < static_cast<int>(job.split.stage_of.size()); ++layer) {
        const int holder = job.plan.shape.devices_of(job.split.stage_of[layer]).front();
        bytes.push_back(plan.is_here(holder) ? devices_[holder]->bytes_of(layer, last) : LayerBytes{});
    }
    return of_all_ranks(std::move(bytes));
}

std::vector<StageLayout> Training::layouts_at(int samples, const std::vector<LayerBytes>& bytes) const {
    const Bytes input = any_device().kernels().data_bytes(model.input, samples);
    std::vector<StageLayout> layouts;
    for (int stage = 0; stage < job.split.stages(); ++stage)
        layouts.push_back(layout_stage(model.layers, job.split, stage, bytes, input));
    return layouts;
}

Costs Training::costs_of(const std::vector<StageLayout>& layouts, const std::vector<LayerBytes>& bytes) const {
    Costs costs;
    costs.edges = edge_bytes(model.layers, job.split, bytes);
    costs.sent_copies = false;
    costs.optimizer = job.setup.training.optimizer;
    costs.kept = kept_of(job.setup);
    costs.zero = job.setup.training.zero;
    costs.pair_exposed = job.setup.pipeline.pair_exposed;
    std::ranges::transform(layouts, std::back_inserter(costs.bytes), stage_bytes);
    return costs;
}

// The backend's own sizes, and no times: tensors are passed by pointer.
Costs Training::prepare_memory() {
    const std::vector<LayerBytes> bytes = layer_bytes(false);
    Layouts layouts{layouts_at(plan.sizes.full, bytes), {}, bytes, shared_tables(job, bytes), {}};
    layouts.measurers = measurers_of(job, layouts.full);
    Costs costs = costs_of(layouts.full, bytes);
    if (!plan.sizes.is_even()) {
        const std::vector<LayerBytes> last_bytes = layer_bytes(true);
        layouts.last = layouts_at(plan.sizes.last(), last_bytes);
        add_last(costs, costs_of(layouts.last, last_bytes));
    }
    if (job.setup.run.transport == RunConfig::Transport::Link)
        costs.cluster = cluster_of(job.setup, {}), add_settings(costs, job.setup);
    else if (plan.on_ranks)
        costs.sent_copies = true;
    layouts_.emplace(std::move(layouts));
    return costs;
}

}  // namespace pw
