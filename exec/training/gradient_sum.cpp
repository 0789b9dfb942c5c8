#include "exec/training/gradient_sum.h"

#include "exec/training/bucketed_sum.h"
#include "exec/training/statistics_gather.h"

#include <algorithm>
#include <span>
#include <utility>

namespace pw {

namespace {

std::size_t place_of(int device, const std::vector<int>& devices) {
    return static_cast<std::size_t>(std::find(devices.begin(), devices.end(), device) - devices.begin());
}

}  // namespace

// One block is enough for the gradients of all stages and of all tables, since they are added in sequence.
void GradientSum::reserve() {
    if (!on_.plan.trains())
        return;
    Bytes stages = 0, tables = 0;
    for (const auto& [stage, held] : on_.stages) {
        Bytes share = 0;
        for (int bucket = 0; bucket < held.share.buckets; ++bucket)
            share = std::max(share, held.share.share_in(held.share.bucket(bucket), held.share.number).bytes);
        for (const int holder : held.share.holders)
            if (!on_.peers.reads(holder) && !on_.peers.reduces(stage))
                stages += on_.plan.gradient_parts(stage) * share;
    }
    for (const SharedTable& table : on_.layouts.tables)
        if (const std::size_t place = place_of(on_.device, table.devices); place < table.devices.size())
            for (const int layer : table.layers)
                if (const int stage = on_.plan.job.split.stage_of[layer];
                    !on_.holds(stage) && !on_.peers.reads(on_.plan.first_holder(stage)))
                    tables += share_of({0, table.bytes}, place, table.devices.size()).bytes;
    if (const Bytes bytes = std::max(stages, tables); bytes > 0)
        fetched_ = on_.kernels.reserve(bytes, fmt::format("device {}, for gradients of other devices", on_.device));
}

void GradientSum::sum(int node, StatisticsGather& statistics, BucketedSum* buckets) {
    if (!on_.plan.barriers->begins(node))
        return;
    const std::vector<int>& stages = on_.plan.barriers->barrier(node)->stages;
    const int mb = on_.plan.graph.task(node).microbatch;
    const auto own_stages = [&](auto act) {
        for (const int stage : stages)
            if (on_.holds(stage))
                act(stage);
    };
    const auto own_tables = [&](auto act) {
        for (const SharedTable& table : on_.layouts.tables)
            if (place_of(on_.device, table.devices) < table.devices.size() &&
                std::ranges::find(stages, on_.plan.job.split.stage_of[table.layers.front()]) != stages.end())
                act(table);
    };
    if (buckets != nullptr)
        buckets->wait(node);
    int round = 0;
    own_stages([&](int stage) {
        if (buckets == nullptr)
            list(stage, on_.stages.at(stage).share.all);
        statistics.copy({Op::SumGradients, stage, mb});
    });
    on_.peers.fetch(node);
    if (buckets == nullptr) {
        add();
        on_.peers.reduce(node);
        on_.peers.arrive(node, ++round);
        own_stages([&](int stage) { copy(stage, on_.stages.at(stage).share.all); });
        on_.peers.fetch(node);
    }
    own_stages([&](int stage) {
        if (on_.stages.at(stage).share.holders.size() > 1)
            statistics.gather({Op::SumGradients, stage, mb});
    });
    on_.peers.arrive(node, ++round);
    if (!on_.layouts.tables.empty()) {
        own_tables([&](const SharedTable& table) { list(table); });
        on_.peers.fetch(node);
        add();
        on_.peers.arrive(node, ++round);
        own_tables([&](const SharedTable& table) { copy(table); });
        on_.peers.fetch(node);
        on_.peers.arrive(node, ++round);
    }
    own_stages([&](int stage) { on_.stages.at(stage).memory.is_summed = true; });
}

void GradientSum::complete(int stage) {
    if (std::exchange(on_.stages.at(stage).memory.is_summed, true))
        return;
    for (const SharedTable& table : on_.layouts.tables)
        if (on_.plan.job.split.stage_of[table.layers.front()] == stage) {
            list(table);
            add();
            copy(table);
        }
}

// The share is the sum of all blocks, in the order of the holders. With reduce() the device sums its own blocks,
// over all bytes.
void GradientSum::list(int stage, const Extent& bytes) {
    const HeldStage& held = on_.stages.at(stage);
    std::byte* own = held.memory.gradients();
    const bool reduces = on_.peers.reduces(stage);
    const Extent part = reduces ? bytes : held.share.share_in(bytes, held.share.number);
    if (own == nullptr || part.bytes == 0)
        return;
    Addition& sum = next_addition(own + part.first, part.bytes);
    for (const int holder : held.share.holders)
        if (holder == on_.device || !reduces)
            for (const GradientPart& block : on_.peers.memory_of(holder, stage).parts)
                if (block.begun.weight)
                    sum.from.push_back(readable(holder, block.block + part.first, part.bytes));
}

void GradientSum::copy(int stage, const Extent& bytes) {
    const HeldStage& held = on_.stages.at(stage);
    std::byte* own = held.memory.gradients();
    if (own == nullptr || on_.peers.reduces(stage))
        return;
    for (std::size_t k = 0; k < held.share.holders.size(); ++k) {
        const int holder = held.share.holders[k];
        if (holder == on_.device)
            continue;
        const std::byte* sums = on_.peers.memory_of(holder, stage).gradients();
        for (const Extent& needed : held.share.needed) {
            const Extent piece = common(needed, held.share.share_in(bytes, k));
            on_.peers.copy(holder, sums + piece.first, own + piece.first, piece.bytes);
        }
    }
}

// The copies of a shared table: the embedding's gradient first. All holders of a stage have the same sum by now.
void GradientSum::list(const SharedTable& table) {
    const std::size_t place = place_of(on_.device, table.devices);
    const Extent share = share_of({0, table.bytes}, place, table.devices.size());
    if (share.bytes == 0)
        return;
    Addition& sum = next_addition(gradient_of(on_.device, table.nearest[place]) + share.first, share.bytes);
    for (const int layer : table.layers) {
        const int stage = on_.plan.job.split.stage_of[layer];
        const int holder = on_.holds(stage) ? on_.device : on_.plan.first_holder(stage);
        sum.from.push_back(readable(holder, gradient_of(holder, layer) + share.first, share.bytes));
    }
}

void GradientSum::copy(const SharedTable& table) {
    for (const int layer : table.layers) {
        if (!on_.holds(on_.plan.job.split.stage_of[layer]))
            continue;
        std::byte* own = gradient_of(on_.device, layer);
        for (std::size_t k = 0; k < table.devices.size(); ++k) {
            const Extent share = share_of({0, table.bytes}, k, table.devices.size());
            if (const std::byte* from = gradient_of(table.devices[k], table.nearest[k]); from != own)
                on_.peers.copy(table.devices[k], from + share.first, own + share.first, share.bytes);
        }
    }
}

// Returns the address at which kernels here can read the block after the next fetch().
const std::byte* GradientSum::readable(int device, const std::byte* block, Bytes bytes) {
    if (on_.peers.reads(device))
        return block;
    std::byte* here = fetched_->data() + std::exchange(used_, used_ + bytes);
    on_.peers.copy(device, block, here, bytes);
    return here;
}

// Returns the layer's part of the first block of its stage.
std::byte* GradientSum::gradient_of(int device, int layer) const {
    const int stage = on_.plan.job.split.stage_of[layer];
    return on_.peers.memory_of(device, stage).gradients() + on_.layouts.full[stage].weight_offset[layer];
}

// The next step reuses the additions, with the memory of their lists.
GradientSum::Addition& GradientSum::next_addition(std::byte* to, Bytes bytes) {
    if (listed_ == additions_.size())
        additions_.emplace_back();
    Addition& next = additions_[listed_++];
    next.from.clear();
    next.to = to;
    next.bytes = bytes;
    return next;
}

void GradientSum::add() {
    for (const Addition& sum : std::span(additions_).first(std::exchange(listed_, 0)))
        if (sum.from.empty())
            on_.kernels.fill(sum.to, 0, sum.bytes);
        else if (sum.from.size() > 1 || sum.from.front() != sum.to)
            on_.kernels.sum(sum.from, 0, sum.bytes, sum.to);
    used_ = 0;
}

}  // namespace pw
