#include "exec/training/kept_state.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pw {

std::string state_suffix(const OptimizerFacts& optimizer, int state) {
    return state < optimizer.states ? std::string(optimizer.suffixes[static_cast<std::size_t>(state)]) : ".delta";
}

KeptState::BlocksOfStages KeptState::newest() const {
    BlocksOfStages all;
    for (const auto& [stage, held] : stages_) {
        const StageMemory& memory = held.memory;
        if (const std::byte* weights = memory.weights(memory.newest); weights != nullptr)
            all[stage] = {weights, memory.statistics, memory.states(memory.newest)};
    }
    return all;
}

// Calls act(block, bytes, member of Blocks, stage) for every block.
template <class Act>
void KeptState::for_each_block(const BlocksOfStages& from, Act act) const {
    for (const auto& [stage, blocks] : from) {
        const HeldStage& held = stages_.at(stage);
        const StageLayout& layout = held.program->layout();
        act(blocks.weights, layout.weights + layout.frozen, &Blocks::weights, stage);
        act(blocks.statistics, layout.statistics, &Blocks::statistics, stage);
        act(blocks.states, states_of(stage) * held.updated().bytes, &Blocks::states, stage);
    }
}

void KeptState::keep(bool copies) {
    const BlocksOfStages blocks = newest();
    is_kept_ = true;
    if (!copies) {
        tensors_ = DeviceState{parameters_in(blocks), states_in(blocks)};
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
        tensors_ ? *std::exchange(tensors_, std::nullopt) : DeviceState{parameters_in(copies_), states_in(copies_)};
    is_kept_ = false;
    return state;
}

std::vector<NamedTensor> KeptState::parameters_in(const BlocksOfStages& blocks) const {
    std::vector<NamedTensor> all;
    for (const auto& [stage, of] : blocks)
        std::ranges::move(stages_.at(stage).program->named(of.weights, of.statistics, false), std::back_inserter(all));
    return all;
}

std::vector<NamedTensor> KeptState::states_in(const BlocksOfStages& blocks) const {
    std::vector<NamedTensor> all;
    for (const auto& [stage, of] : blocks) {
        const HeldStage& held = stages_.at(stage);
        for (int state = 0; of.states != nullptr && state < states_of(stage); ++state) {
            const std::byte* values = of.states + state * held.updated().bytes;
            std::unique_ptr<Memory> whole;
            if (held.share.is_sharded) {
                whole = kernels_.reserve(held.share.all.bytes, "states to keep");
                kernels_.copy(values, whole->data() + held.share.part.first, held.share.part.bytes);
                values = whole->data();
            }
            for (NamedTensor& tensor : held.program->named(values, of.statistics, true)) {
                tensor.name += state_suffix(optimizer_, state);
                all.push_back(std::move(tensor));
            }
        }
    }
    return all;
}

}  // namespace pw
