#include "exec/training/kept_state.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pw {

KeptState::BlocksOfStages KeptState::newest() const {
    BlocksOfStages all;
    for (const auto& [stage, held] : stages_) {
        const StageMemory& memory = held.memory;
        if (const std::byte* weights = memory.weights(memory.newest); weights != nullptr)
            all[stage] = {weights, memory.statistics, memory.momentum(memory.newest)};
    }
    return all;
}

// Calls act(block, bytes, member of Blocks, stage) for every block.
template <class Act>
void KeptState::for_each_block(const BlocksOfStages& from, Act act) const {
    for (const auto& [stage, blocks] : from) {
        const HeldStage& held = stages_.at(stage);
        act(blocks.weights, held.share.all.bytes, &Blocks::weights, stage);
        act(blocks.statistics, held.program->layout().statistics, &Blocks::statistics, stage);
        act(blocks.momentum, held.share.is_sharded ? held.share.part.bytes : held.share.all.bytes, &Blocks::momentum,
            stage);
    }
}

void KeptState::keep(bool copies) {
    const BlocksOfStages blocks = newest();
    is_kept_ = true;
    if (!copies) {
        tensors_ = DeviceState{parameters_in(blocks), momenta_in(blocks)};
        return;
    }
    if (memory_ == nullptr) {
        Bytes bytes = 0;
        for_each_block(blocks,
                       [&](const std::byte* block, Bytes size, auto, int) { bytes += block == nullptr ? 0 : size; });
        memory_ = kernels_.reserve(bytes, fmt::format("the state of device {} for a checkpoint", device_));
    }
    std::byte* to = memory_->data();
    for_each_block(blocks, [&](const std::byte* block, Bytes bytes, const std::byte* Blocks::*member, int stage) {
        copies_[stage].*member = block == nullptr ? nullptr : to;
        if (block == nullptr)
            return;
        kernels_.copy(block, to, bytes);
        to += bytes;
    });
}

DeviceState KeptState::take() {
    DeviceState state =
        tensors_ ? *std::exchange(tensors_, std::nullopt) : DeviceState{parameters_in(copies_), momenta_in(copies_)};
    is_kept_ = false;
    return state;
}

std::vector<NamedTensor> KeptState::parameters_in(const BlocksOfStages& blocks) const {
    std::vector<NamedTensor> all;
    for (const auto& [stage, of] : blocks)
        std::ranges::move(stages_.at(stage).program->named(of.weights, of.statistics, false), std::back_inserter(all));
    return all;
}

std::vector<NamedTensor> KeptState::momenta_in(const BlocksOfStages& blocks) const {
    std::vector<NamedTensor> all;
    for (const auto& [stage, of] : blocks) {
        const HeldStage& held = stages_.at(stage);
        const std::byte* momentum = of.momentum;
        if (momentum == nullptr)
            continue;
        std::unique_ptr<Memory> whole;
        if (held.share.is_sharded) {
            whole = kernels_.reserve(held.share.all.bytes, "momenta to keep");
            kernels_.copy(momentum, whole->data() + held.share.part.first, held.share.part.bytes);
            momentum = whole->data();
        }
        std::ranges::move(held.program->named(momentum, of.statistics, true), std::back_inserter(all));
    }
    return all;
}

}  // namespace pw
