#include "exec/training/statistics_gather.h"

#include <utility>

namespace pw {

void StatisticsGather::list() {
    std::vector<int> samples;
    for (int mb = 0; mb < on_.plan.job.plan.shape.microbatches; ++mb)
        samples.push_back(on_.plan.sizes.of(mb));
    for (const auto& [stage, held] : on_.stages)
        if (held.memory.statistics != nullptr && on_.plan.trains()) {
            Stage& state = stages_[stage];
            state.batches = StatisticsTable(on_.kernels, readable(stage, state), samples);
        }
}

// Returns the blocks by micro-batch, with memory on this device for the blocks that have to be copied.
std::vector<std::byte*> StatisticsGather::readable(int stage, Stage& state) const {
    std::vector<std::byte*> addresses;
    for (int mb = 0; mb < on_.plan.job.plan.shape.microbatches; ++mb)
        addresses.push_back(on_.peers.memory_of(on_.plan.graph.holder(stage, mb), stage).left_statistics[mb]);
    const Bytes bytes = on_.layouts.full[stage].statistics;
    const auto is_elsewhere = [&](std::size_t mb) {
        return addresses[mb] != nullptr && !on_.peers.reads(on_.plan.graph.holder(stage, static_cast<int>(mb)));
    };
    Bytes all = 0;
    for (std::size_t mb = 0; mb < addresses.size(); ++mb)
        all += is_elsewhere(mb) ? bytes : 0;
    if (all == 0)
        return addresses;
    state.memory = on_.kernels.reserve(all, fmt::format("device {}, for statistics of other devices", on_.device));
    state.copies.assign(addresses.size(), nullptr);
    std::byte* next = state.memory->data();
    for (std::size_t mb = 0; mb < addresses.size(); ++mb)
        if (is_elsewhere(mb))
            addresses[mb] = state.copies[mb] = std::exchange(next, next + bytes);
    return addresses;
}

void StatisticsGather::copy(const Task& closing) {
    const auto found = stages_.find(closing.stage);
    if (found == stages_.end() || found->second.copies.empty())
        return;
    const Shape& shape = on_.plan.job.plan.shape;
    const int mini_batch = shape.mini_batch_of(closing.microbatch);
    for (int mb = shape.first_of(mini_batch); mb <= shape.last_of(mini_batch); ++mb)
        if (std::byte* const here = found->second.copies[mb]; here != nullptr) {
            const int holder = on_.plan.graph.holder(closing.stage, mb);
            on_.peers.copy(holder, on_.peers.memory_of(holder, closing.stage).left_statistics[mb], here,
                           on_.layouts.full[closing.stage].statistics);
        }
}

void StatisticsGather::gather(const Task& closing) {
    const auto found = stages_.find(closing.stage);
    if (found == stages_.end())
        return;
    const HeldStage& held = on_.stages.at(closing.stage);
    const Shape& shape = on_.plan.job.plan.shape;
    const int mini_batch = shape.mini_batch_of(closing.microbatch);
    held.program->gather_statistics(
        found->second.batches.of(shape.first_of(mini_batch), shape.last_of(mini_batch),
                                 on_.plan.job.setup.training.batch_norm == TrainingConfig::BatchNorm::Deferred),
        held.memory.statistics);
}

}  // namespace pw
