// The programs of a device's stages: there is one for full micro-batches, and one for a smaller last micro-batch of a
// mini-batch, which runs in the same buffers, laid out for itself.
#include "exec/training/training.h"
#include "job/build.h"
#include "workloads/error.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pw {

StageProgram& TrainingDevice::add_program(int stage, int samples,
                                          std::map<int, std::unique_ptr<StageProgram>>& to) const {
    const Job& job = run_.job;
    to[stage] = std::make_unique<StageProgram>(*job.model, job.split, stage, *kernels_, samples);
    return *to[stage];
}

// Kernels for two sizes share one block of parameters: both must read the same values in it.
void TrainingDevice::check_last_program(int stage) const {
    const StageProgram &all = *programs_.at(stage), &last = *last_programs_.at(stage);
    const StageState& state = stages_.at(stage);
    const auto check = [&](bool same, const std::string& what) {
        if (!same)
            fail_with(ExitCode::RunFailed,
                      "{}: backend {} keeps it in another form for micro-batches of {} than of {}\n  help: choose "
                      "pipeline.mini_batch and micro_batch_size so that the last micro-batch is as large as the others",
                      what, kernels_->name(), run_.plan.sizes.last(), run_.plan.sizes.full);
    };
    for (const int layer : all.layers()) {
        const LayerBytes one = all.bytes_of(layer), other = last.bytes_of(layer);
        check(one.weights == other.weights && one.statistics == other.statistics, run_.job.model->layers[layer].name);
    }
    if (state.slots[0] == nullptr)
        return;
    const std::vector<NamedTensor> values = all.named(state.slots[0], state.statistics, false);
    const std::vector<NamedTensor> others = last.named(state.slots[0], state.statistics, false);
    for (std::size_t k = 0; k < values.size(); ++k)
        check(values[k].values == others[k].values, values[k].name);
}

StageProgram& TrainingDevice::program_of(const Task& task) const {
    const auto last = last_programs_.find(task.stage);
    const bool smaller = last != last_programs_.end() && run_.job.plan.shape.ends_mini_batch(task.microbatch);
    return smaller ? *last->second : *programs_.at(task.stage);
}

LayerBytes TrainingDevice::bytes_of(int layer, bool last) const {
    return (last ? last_programs_ : programs_).at(run_.job.split.stage_of[layer])->bytes_of(layer);
}

std::vector<LayerBytes> Training::layer_bytes(bool last) const {
    std::vector<LayerBytes> bytes;
    for (int layer = 0; layer < static_cast<int>(job.split.stage_of.size()); ++layer) {
        const int speaker = job.plan.shape.devices_of(job.split.stage_of[layer]).front();
        bytes.push_back(plan.is_here(speaker) ? devices_[speaker]->bytes_of(layer, last) : LayerBytes{});
    }
    return of_all_ranks(std::move(bytes));
}

std::vector<StageLayout> Training::layouts_at(int samples, const std::vector<LayerBytes>& bytes) const {
    const Bytes input = any_device().kernels().data_bytes(job.model->input, samples);
    std::vector<StageLayout> layouts;
    for (int stage = 0; stage < job.split.stages(); ++stage)
        layouts.push_back(layout_stage(job.model->layers, job.split, stage, bytes, input));
    return layouts;
}

Costs Training::costs_of(const std::vector<StageLayout>& layouts, const std::vector<LayerBytes>& bytes) const {
    Costs costs;
    costs.edges = edge_bytes(job.model->layers, job.split, bytes);
    costs.sent_copies = false;
    costs.shard_optimizer = job.config.training.shard_optimizer;
    std::ranges::transform(layouts, std::back_inserter(costs.bytes), stage_bytes);
    return costs;
}

// The backend's own sizes, no times: tensors are handed over by pointer.
Costs Training::prepare_memory() {
    const std::vector<LayerBytes> bytes = layer_bytes(false);
    Layouts layouts{layouts_at(plan.sizes.full, bytes), {}, shared_tables(job, bytes)};
    Costs costs = costs_of(layouts.full, bytes);
    if (!plan.sizes.is_even()) {
        const std::vector<LayerBytes> last_bytes = layer_bytes(true);
        layouts.last = layouts_at(plan.sizes.last(), last_bytes);
        add_last(costs, costs_of(layouts.last, last_bytes));
    }
    if (job.config.run.transport == RunConfig::Transport::Link)
        add_cluster(costs, job.config, {});
    else if (plan.on_ranks)
        costs.sent_copies = true;
    layouts_.emplace(std::move(layouts));
    measurers_ = find_measurers();
    return costs;
}

}  // namespace pw
