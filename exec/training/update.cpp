// U, the optimizer update: of the whole stage, or, where its holders share out the optimizer's states, of the device's
// part of it, whose new weights the holders then hand round.
#include "exec/training/training.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pw {

bool Training::shards(int stage) const {
    return job.config.training.shard_optimizer && job.plan.shape.devices_of(stage).size() > 1;
}

std::vector<int> Training::find_measurers() const {
    std::vector<int> measurers;
    for (std::size_t layer = 0; layer < job.split.stage_of.size(); ++layer) {
        const int stage = job.split.stage_of[layer];
        const std::vector<int> holders = job.plan.shape.devices_of(stage);
        const StageLayout& layout = layouts_->full[stage];
        std::size_t number = 0;
        while (shards(stage) && number + 1 < holders.size() &&
               share_of({0, layout.weights}, number, holders.size()).end() <= layout.weight_offset[layer])
            ++number;
        measurers.push_back(holders[number]);
    }
    return measurers;
}

// Of a sharded stage the device wants the sums of its part, of shared tables, whose copies are to be added, and of the
// layers that it measures: a norm is the sum of a layer's squares in one order, however the holders share it out.
void TrainingDevice::list_parts(int stage) {
    StageState& state = state_of(stage);
    const StageLayout& layout = run_.layouts().full[stage];
    state.all = {0, layout.weights};
    state.number = static_cast<std::size_t>(std::ranges::find(state.holders, device_) - state.holders.begin());
    state.part = share_of(state.all, state.number, state.holders.size());
    state.is_sharded = run_.shards(stage);
    if (!state.is_sharded || run_.record().keeps_tensors()) {
        state.wanted = {state.all};
        return;
    }
    const auto is_shared = [&](int layer) {
        return std::ranges::any_of(run_.layouts().tables, [&](const SharedTable& table) {
            return std::ranges::find(table.layers, layer) != table.layers.end();
        });
    };
    for (const int layer : programs_.at(stage)->layers())
        if (run_.measurer_of(layer) == device_ || is_shared(layer))
            state.wanted.push_back({layout.weight_offset[layer], programs_.at(stage)->bytes_of(layer).weights});
}

void TrainingDevice::resume_momenta(int stage) {
    StageState& state = stages_.at(stage);
    const auto resume = [&](std::byte* to) {
        programs_.at(stage)->initialise([&](int layer) { return run_.resumed_momenta(layer); }, to, state.statistics);
    };
    if (!state.is_sharded)
        return resume(state.momenta[0]);
    const std::unique_ptr<Memory> whole = kernels_->reserve(state.all.bytes, "momenta to go on from");
    resume(whole->data());
    kernels_->copy(whole->data() + state.part.first, state.momenta[0], state.part.bytes);
}

std::byte* TrainingDevice::weights_of(int stage, int version) const {
    const StageState& state = stages_.at(stage);
    return state.slots[state.slot_of[version]];
}

// The first U of a device in a barrier does the step for its parts of all sharded stages there. Nobody writes weights
// that another holder still takes: that holder first comes to the next S.
void TrainingDevice::update(const Task& task, int node) {
    const Barriers& barriers = *run_.plan.barriers;
    if (run_.job.plan.shape.global_norm && barriers.begins(node))
        kernels_->clip_factor(squares_of(task), run_.job.config.training.clip_norm, clip_factor_);
    if (barriers.exchanges_weights(node)) {
        const auto sharded = [&](auto act) {
            for (const int stage : barriers.barrier(node)->stages)
                if (holds(stage) && stages_.at(stage).is_sharded)
                    act(Task{Op::Update, stage, task.microbatch});
        };
        sharded([&](const Task& each) { begin_update(each); });
        arrive(node, 1);
        sharded([&](const Task& each) { take_weights(each.stage); });
        fetch(node);
        sharded([&](const Task& each) { end_update(each); });
    }
    if (stages_.at(task.stage).is_sharded)
        return;
    begin_update(task);
    end_update(task);
}

bool TrainingDevice::is_kept(const Task& update) const {
    return run_.record().keeps_tensors() && run_.plan.speaks_for(device_, update.stage) && step_ == 0 &&
           run_.job.plan.shape.mini_batch_of(update.microbatch) == 0;
}

void TrainingDevice::begin_update(const Task& task) {
    StageState& state = stages_.at(task.stage);
    std::byte* gradients = state.parts.front().block;
    complete_gradients(task.stage);
    state.summed = false;
    for (GradientPart& part : state.parts)
        part.begun = {};
    if (gradients == nullptr)
        return;
    if (is_kept(task))
        run_.record().keep(Record::Moment::Gradients, device_, named(task.stage, gradients, true));
    const bool clips = run_.job.plan.shape.global_norm;
    double* const squares = clips ? nullptr : squares_of(task).data();
    if (squares != nullptr && state.is_sharded)
        measure(task.stage, squares);
    const Extent part = state.is_sharded ? state.part : state.all;
    if (clips)
        kernels_->scale(clip_factor_, gradients + part.first, part.bytes);
    const TrainingConfig& training = run_.job.config.training;
    const Sgd sgd{training.learning_rate, training.momentum, training.weight_decay};
    const std::byte* weights = weights_of(task.stage, state.newest);
    std::byte* new_weights = weights_of(task.stage, state.newest + 1);
    if (state.is_sharded)
        programs_[task.stage]->update(sgd, part, weights, gradients, state.momenta[0], new_weights);
    else
        programs_[task.stage]->update(sgd, weights, gradients, next_momentum(task.stage), new_weights,
                                      run_.plan.speaks_for(device_, task.stage) ? squares : nullptr);
}

void TrainingDevice::take_weights(int stage) {
    const StageState& state = stages_.at(stage);
    std::byte* own = weights_of(stage, state.newest + 1);
    for (std::size_t k = 0; own != nullptr && k < state.holders.size(); ++k) {
        const int holder = state.holders[k];
        const Extent part = share_of(state.all, k, state.holders.size());
        if (holder != device_)
            take(holder, run_.kernel_device(holder).weights_of(stage, state.newest + 1) + part.first, own + part.first,
                 part.bytes);
    }
}

void TrainingDevice::end_update(const Task& task) {
    StageState& state = stages_.at(task.stage);
    if (state.parts.front().block == nullptr)
        return;
    if (state.holders.size() == 1)
        gather_statistics(task);
    ++state.newest;
    if (is_kept(task))
        run_.record().keep(Record::Moment::Updated, device_,
                           named(task.stage, weights_of(task.stage, state.newest), false));
}

// That U makes from the newest one. A stage that predicts weights has one beside every version.
std::byte* TrainingDevice::next_momentum(int stage) const {
    const StageState& state = stages_.at(stage);
    if (!run_.job.versions.predicts(stage))
        return state.momenta[0];
    const int old_slot = state.slot_of[state.newest], new_slot = state.slot_of[state.newest + 1];
    if (new_slot != old_slot)
        kernels_->copy(state.momenta[old_slot], state.momenta[new_slot], state.all.bytes);
    return state.momenta[new_slot];
}

// Writes what this device is to measure of a stage's gradients.
void TrainingDevice::measure(int stage, double* squares) const {
    const StageState& state = stages_.at(stage);
    const std::byte* gradients = state.parts.front().block;
    if (gradients == nullptr)
        return;
    const StageProgram& program = *programs_.at(stage);
    if (!state.is_sharded && run_.plan.speaks_for(device_, stage))
        program.measure(gradients, squares);
    for (const int layer : program.layers())
        if (state.is_sharded && run_.measurer_of(layer) == device_)
            program.measure(layer, gradients, squares);
}

}  // namespace pw
