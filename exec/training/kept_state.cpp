// What checkpoints have of a device. Where a device's work is done when a call returns, keeping is a copy of its blocks
// into memory that stays, and the tensors are made of it while the device goes on; others make the tensors at once.
#include "exec/training/training.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pw {

std::map<int, TrainingDevice::Blocks> TrainingDevice::newest() const {
    std::map<int, Blocks> all;
    for (const auto& [stage, state] : stages_) {
        const int slot = state.slot_of[state.newest];
        if (state.slots[slot] != nullptr)
            all[stage] = {state.slots[slot], state.statistics,
                          state.momenta[run_.job.versions.predicts(stage) ? slot : 0]};
    }
    return all;
}

// Calls act(block, bytes, where it is kept) for every block.
template <class Act>
void TrainingDevice::for_kept(const std::map<int, Blocks>& from, Act act) const {
    for (const auto& [stage, blocks] : from) {
        const StageState& state = stages_.at(stage);
        act(blocks.weights, state.all.bytes, &Blocks::weights, stage);
        act(blocks.statistics, programs_.at(stage)->layout().statistics, &Blocks::statistics, stage);
        act(blocks.momentum, state.is_sharded ? state.part.bytes : state.all.bytes, &Blocks::momentum, stage);
    }
}

void TrainingDevice::reserve_kept() {
    Bytes bytes = 0;
    for_kept(newest(), [&](const std::byte* block, Bytes size, auto, int) { bytes += block == nullptr ? 0 : size; });
    kept_memory_ = kernels_->reserve(bytes, fmt::format("what a checkpoint has of device {}", device_));
}

void TrainingDevice::keep_state() {
    const std::map<int, Blocks> blocks = newest();
    has_kept_ = true;
    if (!works_at_once()) {
        kept_ = State{parameters_in(blocks), momenta_in(blocks)};
        return;
    }
    if (kept_memory_ == nullptr)
        reserve_kept();
    std::byte* to = kept_memory_->data();
    for_kept(blocks, [&](const std::byte* block, Bytes bytes, const std::byte* Blocks::*member, int stage) {
        kept_blocks_[stage].*member = block == nullptr ? nullptr : to;
        if (block == nullptr)
            return;
        kernels_->copy(block, to, bytes);
        to += bytes;
    });
}

TrainingDevice::State TrainingDevice::kept_state() {
    State state = kept_ ? *std::exchange(kept_, std::nullopt) : [&] {
        open_bucket_thread();
        return State{parameters_in(kept_blocks_), momenta_in(kept_blocks_)};
    }();
    has_kept_ = false;
    return state;
}

std::vector<NamedTensor> TrainingDevice::parameters() const { return parameters_in(newest()); }

// With statistics where the device speaks for the stage.
std::vector<NamedTensor> TrainingDevice::parameters_in(const std::map<int, Blocks>& blocks) const {
    std::vector<NamedTensor> all;
    for (const auto& [stage, of] : blocks)
        std::ranges::move(programs_.at(stage)->named(of.weights, of.statistics, false), std::back_inserter(all));
    return all;
}

// By the names of the parameters; zeros where another holder keeps them.
std::vector<NamedTensor> TrainingDevice::momenta_in(const std::map<int, Blocks>& blocks) const {
    std::vector<NamedTensor> all;
    for (const auto& [stage, of] : blocks) {
        const StageState& state = stages_.at(stage);
        const std::byte* momentum = of.momentum;
        if (momentum == nullptr)
            continue;
        std::unique_ptr<Memory> whole;
        if (state.is_sharded) {
            whole = kernels_->reserve(state.all.bytes, "momenta to keep");
            kernels_->copy(momentum, whole->data() + state.part.first, state.part.bytes);
            momentum = whole->data();
        }
        std::ranges::move(programs_.at(stage)->named(momentum, of.statistics, true), std::back_inserter(all));
    }
    return all;
}

}  // namespace pw
