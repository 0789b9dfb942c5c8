#include "exec/training/optimizer.h"

#include "exec/training/gradient_sum.h"
#include "exec/training/statistics_gather.h"

#include <cmath>
#include <utility>

namespace pw {

UpdateRule update_rule(const TrainingConfig& training, std::int64_t number, double rate_factor) {
    const double rate = training.learning_rate * rate_factor;
    switch (training.optimizer) {
        case OptimizerKind::Sgd:
            return Sgd{rate, training.momentum, training.weight_decay};
        case OptimizerKind::AdamW:
            return AdamW{rate, training.weight_decay, {training.betas[0], training.betas[1]}, training.epsilon, number};
        case OptimizerKind::AdamW8Bit:
        case OptimizerKind::AdamWBf16:
        case OptimizerKind::Muon:
            break;  // have no kernels: check_kernels() refuses them
    }
    return {};
}

double rate_factor(const Job& job, int stage, std::int64_t number) {
    const std::int64_t late = number - 1 - job.setup.pipeline.options.synchronous_steps;
    const int steps = anneal_steps_of(job);
    const double delay = job.versions.delay[stage];
    if (late < 0 || late >= steps || delay <= 1)
        return 1;
    return std::pow(delay, static_cast<double>(late) / steps - 1);
}

Optimizer::Optimizer(const DeviceScope& on, GradientSum& sums, StatisticsGather& statistics, Record& record)
    : on_(on), sums_(sums), statistics_(statistics), record_(record) {
    if (on_.plan.job.plan.shape.global_norm)
        clip_factor_ = {on_.kernels, 1};
}

void Optimizer::resume(int stage, int state, const StageProgram::Values& values) {
    const HeldStage& held = on_.stages.at(stage);
    std::byte* const own = held.states(0).block(state);
    if (!held.share.is_sharded)
        return held.program->initialise(values, own, held.memory.statistics);
    const std::unique_ptr<Memory> whole = on_.kernels.reserve(held.share.all.bytes, "states of the checkpoint");
    held.program->initialise(values, whole->data(), held.memory.statistics);
    on_.kernels.copy(whole->data() + held.share.part.first, own, held.share.part.bytes);
}

void Optimizer::measure(const Task& update) {
    for (const auto& [stage, held] : on_.stages) {
        sums_.complete(stage);
        measure(stage, squares_of(update).data());
    }
}

void Optimizer::update(const Task& task, int node, int step) {
    const Barriers& barriers = *on_.plan.barriers;
    if (on_.plan.job.plan.shape.global_norm && barriers.begins(node))
        on_.kernels.clip_factor(squares_of(task), on_.plan.job.setup.training.clip_norm, clip_factor_.data());
    if (barriers.exchanges_weights(node)) {
        const auto sharded = [&](auto act) {
            for (const int stage : barriers.barrier(node)->stages)
                if (on_.holds(stage) && on_.stages.at(stage).share.is_sharded)
                    act(Task{Op::Update, stage, task.microbatch});
        };
        sharded([&](const Task& each) { begin(each, step); });
        on_.peers.arrive(node, 1);
        sharded([&](const Task& each) { copy_weights(each.stage); });
        on_.peers.fetch(node);
        sharded([&](const Task& each) { end(each, step); });
    }
    if (on_.stages.at(task.stage).share.is_sharded)
        return;
    begin(task, step);
    end(task, step);
}

// True for the first update of the run, on the first holder of the stage.
bool Optimizer::is_recorded(const Task& update, int step) const {
    return record_.keeps_tensors() && on_.plan.is_first_holder(on_.device, update.stage) && step == 0 &&
           on_.plan.job.plan.shape.mini_batch_of(update.microbatch) == 0;
}

void Optimizer::begin(const Task& task, int step) {
    HeldStage& held = on_.stages.at(task.stage);
    StageMemory& memory = held.memory;
    std::byte* gradients = memory.gradients();
    sums_.complete(task.stage);
    memory.is_summed = false;
    for (GradientPart& part : memory.parts)
        part.begun = {};
    if (gradients == nullptr)
        return;
    if (is_recorded(task, step))
        record_.keep(Record::Moment::Gradients, on_.device, held.program->named(gradients, memory.statistics, true));
    const bool clips = on_.plan.job.plan.shape.global_norm;
    double* const squares = clips ? nullptr : squares_of(task).data();
    if (squares != nullptr && held.share.is_sharded)
        measure(task.stage, squares);
    const Extent& part = held.updated();
    if (clips)
        on_.kernels.scale(clip_factor_.data(), gradients + part.first, part.bytes);
    const int mini_batch = on_.plan.job.plan.shape.mini_batch_of(task.microbatch);
    const std::int64_t number = on_.plan.updates_before(step, mini_batch) + 1;
    const UpdateRule rule =
        update_rule(on_.plan.job.setup.training, number, rate_factor(on_.plan.job, task.stage, number));
    const std::byte* weights = memory.weights(memory.newest);
    std::byte* new_weights = memory.weights(memory.newest + 1);
    const bool corrects = on_.plan.job.versions.corrects(task.stage);
    if (corrects)
        on_.kernels.copy(weights, memory.predicted, held.share.all.bytes);
    if (held.share.is_sharded)
        held.program->update(rule, part, weights, gradients, held.states(0), new_weights);
    else
        held.program->update(rule, weights, gradients, next_states(held), new_weights,
                             on_.plan.is_first_holder(on_.device, task.stage) ? squares : nullptr);
    if (corrects)
        average_step(held, task.stage, new_weights);
}

// Updates the average of the steps of weights: d = g d + (1 - g) (new - old), with g = decay^(1 / delay), so that the
// share of a step is `decay` a delay later. The old weights are in the block of predicted weights.
void Optimizer::average_step(const HeldStage& held, int stage, const std::byte* new_weights) const {
    const Job& job = on_.plan.job;
    std::byte* const old = held.memory.predicted;
    std::byte* const average = held.step_average(facts_of(job.setup.training.optimizer));
    const double kept = std::pow(job.setup.training.correction_decay, 1 / job.versions.back[stage]);
    held.program->predict(old, new_weights, 1, old);         // old - new
    held.program->predict(old, average, -1, old);            // old - new + d
    held.program->predict(average, old, 1 - kept, average);  // d - (1 - g) (old - new + d)
}

void Optimizer::copy_weights(int stage) {
    const HeldStage& held = on_.stages.at(stage);
    const int version = held.memory.newest + 1;
    std::byte* own = held.memory.weights(version);
    for (std::size_t k = 0; own != nullptr && k < held.share.holders.size(); ++k) {
        const int holder = held.share.holders[k];
        const Extent part = share_of(held.share.all, k, held.share.holders.size());
        if (holder != on_.device)
            on_.peers.copy(holder, on_.peers.memory_of(holder, stage).weights(version) + part.first, own + part.first,
                           part.bytes);
    }
}

void Optimizer::end(const Task& task, int step) {
    HeldStage& held = on_.stages.at(task.stage);
    StageMemory& memory = held.memory;
    if (held.share.holders.size() == 1)
        statistics_.gather(task);
    ++memory.newest;
    if (is_recorded(task, step))
        record_.keep(Record::Moment::Updated, on_.device,
                     held.program->named(memory.weights(memory.newest), memory.statistics, false));
}

void Optimizer::end_step(int stage, int step) {
    const Shape& shape = on_.plan.job.plan.shape;
    for (int update = 0; update < shape.updates(); ++update)
        statistics_.gather({Op::Update, stage, shape.last_of(update)});
    const HeldStage& held = on_.stages.at(stage);
    if (is_recorded({Op::Update, stage, shape.last_of(0)}, step))
        record_.keep(Record::Moment::Updated, on_.device,
                     held.program->named(held.memory.weights(0), held.memory.statistics, false));
}

// Returns the states of the next version. If they are not the newest version's states, they are made a copy of them.
OptimizerStates Optimizer::next_states(const HeldStage& held) const {
    const int newest = held.memory.newest, states = facts_of(on_.plan.job.setup.training.optimizer).states;
    const OptimizerStates old = held.states(newest), next = held.states(newest + 1);
    if (next.first != old.first)
        on_.kernels.copy(old.first, next.first, states * old.apart);
    return next;
}

// Writes the squares of the gradients that this device measures in a stage.
void Optimizer::measure(int stage, double* squares) const {
    const HeldStage& held = on_.stages.at(stage);
    const std::byte* gradients = held.memory.gradients();
    if (gradients == nullptr)
        return;
    if (!held.share.is_sharded && on_.plan.is_first_holder(on_.device, stage))
        held.program->measure(gradients, squares);
    for (const int layer : held.program->layers())
        if (held.share.is_sharded && on_.layouts.measurers[layer] == on_.device)
            held.program->measure(layer, gradients, squares);
}

std::span<double> Optimizer::squares_of(const Task& update) const {
    return record_.squares_of(on_.plan.job.plan.shape.mini_batch_of(update.microbatch));
}

}  // namespace pw
