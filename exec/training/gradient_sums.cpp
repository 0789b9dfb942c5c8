// S, the sum of gradients: the holders of a stage, and stages that share a parameter, add up their gradients. Every
// device adds its share of the bytes from all blocks, and copies the other shares from those who added them. What its
// kernels cannot read it fetches first.
#include "exec/training/training.h"
#include "workloads/error.h"
#include "workloads/stages/ties.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

namespace pw {

namespace {

std::size_t place_of(int device, const std::vector<int>& devices) {
    return static_cast<std::size_t>(std::find(devices.begin(), devices.end(), device) - devices.begin());
}

}  // namespace

void TrainingDevice::arrive(int node, int) { run_.plan.barriers->arrive(node, run_.synchronise_ranks()); }

void TrainingDevice::wait_at_barrier(const Task& task, int node) {
    if (!run_.plan.barriers->begins(node))
        return;
    if (task.op == Op::SumGradients && stages_.at(task.stage).buckets > 1)
        return wait_for_last_bucket(node);
    if (task.op == Op::Update)
        measure(task);
    arrive(node, 0);
}

// What additions of a stage's gradients and of tables take at most, one after the other.
void TrainingDevice::make_room() {
    Bytes stages = 0, tables = 0;
    if (!run_.plan.trains())
        return;
    for (const auto& [stage, state] : stages_) {
        Bytes share = 0;
        for (int bucket = 0; bucket < state.buckets; ++bucket)
            share = std::max(share, share_in(state, bucket_of(stage, bucket), state.number).bytes);
        for (const int holder : state.holders)
            if (!reads(holder) && !reduces(stage))
                stages += run_.plan.gradient_parts(stage) * share;
    }
    for (const SharedTable& table : run_.layouts().tables)
        if (const std::size_t place = place_of(device_, table.devices); place < table.devices.size())
            for (const int layer : table.layers)
                if (const int stage = run_.job.split.stage_of[layer];
                    !holds(stage) && !reads(run_.plan.first_holder(stage)))
                    tables += share_of({0, table.bytes}, place, table.devices.size()).bytes;
    if (const Bytes bytes = std::max(stages, tables); bytes > 0)
        room_ = kernels_->reserve(bytes, fmt::format("device {}, for gradients of other devices", device_));
}

// A device that holds several stages of the barrier sums them all at its first S. Between its first and its last
// barrier every device may read the blocks of the others, and nobody writes what another one reads.
void TrainingDevice::sum_gradients(int node) {
    if (!run_.plan.barriers->begins(node))
        return;
    const std::vector<int>& stages = run_.plan.barriers->barrier(node)->stages;
    const int mb = run_.plan.graph.task(node).microbatch;
    const auto own_stages = [&](auto act) {
        for (const int stage : stages)
            if (holds(stage))
                act(stage);
    };
    const auto own_tables = [&](auto act) {
        for (const SharedTable& table : run_.layouts().tables)
            if (std::find(table.devices.begin(), table.devices.end(), device_) != table.devices.end() &&
                std::find(stages.begin(), stages.end(), run_.job.split.stage_of[table.layers.front()]) != stages.end())
                act(table);
    };
    const bool in_buckets = stages_.at(run_.plan.graph.task(node).stage).buckets > 1;
    if (in_buckets)
        wait_for_buckets(node);
    int round = 0;
    own_stages([&](int stage) {
        if (!in_buckets)
            list_share(stage, stages_.at(stage).all);
        take_statistics({Op::SumGradients, stage, mb});
    });
    fetch(node);
    if (!in_buckets) {
        add_up();
        reduce(node);
        arrive(node, ++round);
        own_stages([&](int stage) { copy_shares(stage, stages_.at(stage).all); });
        fetch(node);
    }
    own_stages([&](int stage) {
        if (stages_.at(stage).holders.size() > 1)
            gather_statistics({Op::SumGradients, stage, mb});
    });
    arrive(node, ++round);
    if (!run_.layouts().tables.empty()) {
        own_tables([&](const SharedTable& table) { list_share(table); });
        fetch(node);
        add_up();
        arrive(node, ++round);
        own_tables([&](const SharedTable& table) { copy_shares(table); });
        fetch(node);
        arrive(node, ++round);
    }
    own_stages([&](int stage) { stages_.at(stage).summed = true; });
}

// Of a bucket each holder adds up an equal share, or what lies in its part of the stage.
Extent TrainingDevice::share_in(const StageState& state, const Extent& bucket, std::size_t number) const {
    const std::size_t holders = state.holders.size();
    return state.is_sharded ? common(bucket, share_of(state.all, number, holders)) : share_of(bucket, number, holders);
}

// A holder's share is the sum of all blocks, in the order of the holders; with reduce() it is the whole block, of its
// own.
void TrainingDevice::list_share(int stage, const Extent& bucket) {
    const StageState& state = stages_.at(stage);
    std::byte* own = state.parts.front().block;
    const Extent part = reduces(stage) ? bucket : share_in(state, bucket, state.number);
    if (own == nullptr || part.bytes == 0)
        return;
    Addition& sum = next_addition(own + part.first, part.bytes);
    for (const int holder : state.holders)
        if (holder == device_ || !reduces(stage))
            for (const GradientPart& block : run_.kernel_device(holder).gradients_of(stage))
                if (block.begun.weight)
                    sum.from.push_back(readable(holder, block.block + part.first, part.bytes));
}

void TrainingDevice::copy_shares(int stage, const Extent& bucket) {
    const StageState& state = stages_.at(stage);
    std::byte* own = state.parts.front().block;
    if (own == nullptr || reduces(stage))
        return;
    for (std::size_t k = 0; k < state.holders.size(); ++k) {
        const int holder = state.holders[k];
        if (holder == device_)
            continue;
        const std::byte* sums = run_.kernel_device(holder).gradients_of(stage).front().block;
        for (const Extent& wanted : state.wanted) {
            const Extent piece = common(wanted, share_in(state, bucket, k));
            take(holder, sums + piece.first, own + piece.first, piece.bytes);
        }
    }
}

// The copies of a shared table: the embedding's gradient first. All holders of a stage have the same one by now.
void TrainingDevice::list_share(const SharedTable& table) {
    const std::size_t place = place_of(device_, table.devices);
    const Extent share = share_of({0, table.bytes}, place, table.devices.size());
    if (share.bytes == 0)
        return;
    Addition& sum = next_addition(run_.gradient_of(device_, table.nearest[place]) + share.first, share.bytes);
    for (const int layer : table.layers) {
        const int stage = run_.job.split.stage_of[layer];
        const int holder = holds(stage) ? device_ : run_.plan.first_holder(stage);
        sum.from.push_back(readable(holder, run_.gradient_of(holder, layer) + share.first, share.bytes));
    }
}

void TrainingDevice::copy_shares(const SharedTable& table) {
    for (const int layer : table.layers) {
        if (!holds(run_.job.split.stage_of[layer]))
            continue;
        std::byte* own = run_.gradient_of(device_, layer);
        for (std::size_t k = 0; k < table.devices.size(); ++k) {
            const Extent share = share_of({0, table.bytes}, k, table.devices.size());
            if (const std::byte* from = run_.gradient_of(table.devices[k], table.nearest[k]); from != own)
                take(table.devices[k], from + share.first, own + share.first, share.bytes);
        }
    }
}

// Where kernels here can read the block once fetch() has been called.
const std::byte* TrainingDevice::readable(int device, const std::byte* block, Bytes bytes) {
    if (reads(device))
        return block;
    std::byte* here = room_->data() + std::exchange(used_, used_ + bytes);
    take(device, block, here, bytes);
    return here;
}

void TrainingDevice::take(int device, const std::byte* from, std::byte* to, Bytes bytes) {
    if (reads(device))
        kernels_->copy(from, to, bytes);
    else if (bytes > 0)
        fetches_.push_back({device, device_, from, to, bytes});
}

// Additions are used again by the next step, with the memory of their lists.
TrainingDevice::Addition& TrainingDevice::next_addition(std::byte* to, Bytes bytes) {
    if (listed_ == additions_.size())
        additions_.emplace_back();
    Addition& next = additions_[listed_++];
    next.from.clear();
    next.to = to;
    next.bytes = bytes;
    return next;
}

void TrainingDevice::add_up() {
    for (const Addition& sum : std::span(additions_).first(std::exchange(listed_, 0)))
        if (sum.from.empty())
            kernels_->fill(sum.to, 0, sum.bytes);
        else if (sum.from.size() > 1 || sum.from.front() != sum.to)
            kernels_->sum(sum.from, 0, sum.bytes, sum.to);
    used_ = 0;
}

// A stage without S has one holder, and its tables are its own.
void TrainingDevice::complete_gradients(int stage) {
    if (std::exchange(stages_.at(stage).summed, true))
        return;
    for (const SharedTable& table : run_.layouts().tables)
        if (run_.job.split.stage_of[table.layers.front()] == stage) {
            list_share(table);
            add_up();
            copy_shares(table);
        }
}

// With a global norm, before any U: what this device adds to it.
void TrainingDevice::measure(const Task& update) {
    for (const auto& [stage, program] : programs_) {
        complete_gradients(stage);
        measure(stage, squares_of(update).data());
    }
}

std::span<double> TrainingDevice::squares_of(const Task& update) const {
    return run_.record().squares_of(run_.job.plan.shape.mini_batch_of(update.microbatch));
}

std::byte* Training::gradient_of(int device, int layer) const {
    const int stage = job.split.stage_of[layer];
    return devices_[device]->gradients_of(stage).front().block + layouts().full[stage].weight_offset[layer];
}

std::vector<SharedTable> shared_tables(const Job& job, const std::vector<LayerBytes>& bytes) {
    std::map<int, SharedTable> by_owner;
    for (const Tie& tie : ties_of(job.model->layers)) {
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

}  // namespace pw
