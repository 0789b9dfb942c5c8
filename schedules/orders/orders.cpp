#include "schedules/orders/orders.h"

#include "workloads/error.h"

#include <algorithm>

namespace pw {

int Holding::only_stage() const {
    if (stages.size() != 1)
        fail_about(
            {Setting::Stages},
            "this schedule places one stage on each device: device {} would hold {} of {} stages\n  help: set the "
            "number of stages to that of devices, {}",
            device, stages.size(), shape.stages, shape.devices);
    return stages.front();
}

Holdings::Holdings(const Shape& shape) : shape_(shape), index_(shape) {
    int before = 0;
    for (int stage = 0; stage < shape.stages; ++stage) {
        devices_before_.push_back(before);
        before += static_cast<int>(index_.devices_of(stage).size());
    }
}

Holding Holdings::of(int device) const {
    const std::span<const int> stages = index_.stages_of(device);
    Holding own{shape_, device, {stages.begin(), stages.end()}, {}, 0, 0};
    if (stages.empty())
        return own;
    const std::span<const int> holders = index_.devices_of(stages.front());
    own.holders = static_cast<int>(holders.size());
    own.devices_before = devices_before_[stages.front()];
    const auto turn = static_cast<int>(std::find(holders.begin(), holders.end(), device) - holders.begin());
    for (int mb = turn; mb < shape_.microbatches; mb += own.holders)
        own.microbatches.push_back(mb);
    return own;
}

// Model parallelism: one micro-batch in flight, one device at work at a time.
Tasks naive(const Holding& own, const ScheduleOptions&) {
    Tasks order;
    for (const int mb : own.microbatches) {
        for (auto stage = own.stages.begin(); stage != own.stages.end(); ++stage)
            order.push_back({Op::Forward, *stage, mb});
        for (auto stage = own.stages.rbegin(); stage != own.stages.rend(); ++stage)
            order.push_back({Op::Backward, *stage, mb});
    }
    return order;
}

// GPipe (Huang et al., 2019): all forwards, then all backwards; the drain is first in, first out
// (PyTorch) or last in, first out.
Tasks gpipe(const Holding& own, const ScheduleOptions& options) {
    std::vector<int> microbatches = own.microbatches;
    Tasks order;
    for (const int mb : microbatches)
        for (auto stage = own.stages.begin(); stage != own.stages.end(); ++stage)
            order.push_back({Op::Forward, *stage, mb});
    if (options.drain == ScheduleOptions::Drain::Lifo)
        std::reverse(microbatches.begin(), microbatches.end());
    for (const int mb : microbatches)
        for (auto stage = own.stages.rbegin(); stage != own.stages.rend(); ++stage)
            order.push_back({Op::Backward, *stage, mb});
    return order;
}

int share_ahead(const Holding& own, int times) {
    return times * (own.shape.devices - 1 - own.devices_before) / own.holders;
}

int share_behind(const Holding& own, int times) { return times * own.devices_before / own.holders; }

namespace {

// `warmup` forwards ahead, then one forward and one backward in turn, then the remaining backwards.
Tasks alternate(const Holding& own, int warmup) {
    const std::vector<int>& microbatches = own.microbatches;
    const int stage = own.only_stage();
    const auto all = static_cast<int>(microbatches.size());
    warmup = std::min(warmup, all);
    Tasks order;
    for (int k = 0; k < warmup; ++k)
        order.push_back({Op::Forward, stage, microbatches[k]});
    for (int k = 0; k < all; ++k) {
        if (warmup + k < all)
            order.push_back({Op::Forward, stage, microbatches[warmup + k]});
        order.push_back({Op::Backward, stage, microbatches[k]});
    }
    return order;
}

}  // namespace

// 1F1B ("PipeDream-Flush", DAPPLE). Device d runs (p - 1 - d) forwards ahead, so it never holds more
// than (p - d) activations.
Tasks one_f_one_b(const Holding& own, const ScheduleOptions&) { return alternate(own, share_ahead(own)); }

// Eager 1F1B (Zhuang et al., 2023): twice as far ahead, so that transfers hide behind compute.
Tasks eager_one_f_one_b(const Holding& own, const ScheduleOptions&) { return alternate(own, share_ahead(own, 2)); }

// PipeDream-2BW (Narayanan et al., 2021): 1F1B without a flush; two versions are enough when a
// mini-batch is at least as long as the pipeline. With replicas too: F(s, i) follows B(s, i - (a + 1) r), and its
// version is there if that one is of the mini-batch before the last or later, which a <= m div r, that is
// (R - 1 - q) div r <= m div r, makes sure of.
Tasks double_buffered(const Holding& own, const ScheduleOptions& options) {
    const Shape& shape = own.shape;
    if (shape.per_update < shape.devices)
        fail_about({Setting::MicroBatches},
                   "two weight versions need at least as many micro-batches per update as devices: {} for {} "
                   "devices\n  help: take {} micro-batches or more",
                   shape.per_update, shape.devices, shape.devices);
    return one_f_one_b(own, options);
}

namespace {

struct Turn {
    int chunk, microbatch;
};

std::vector<Turn> turns_in_groups(int chunks, int microbatches, int group) {
    std::vector<Turn> turns;
    for (int first = 0; first < microbatches; first += group)
        for (int chunk = 0; chunk < chunks; ++chunk)
            for (int mb = first; mb < std::min(first + group, microbatches); ++mb)
                turns.push_back({chunk, mb});
    return turns;
}

}  // namespace

void take_turns(const Holding& own, int group, int ahead, Tasks& order, const BackwardOf& backward) {
    const int p = own.shape.devices, v = own.shape.stages / p, device = own.device;
    const std::vector<Turn> turns = turns_in_groups(v, own.shape.microbatches, group);
    const auto all = static_cast<int>(turns.size());
    ahead = std::min(ahead, all);
    const auto forward = [&](int k) {
        order.push_back({Op::Forward, turns[k].chunk * p + device, turns[k].microbatch});
    };
    for (int k = 0; k < ahead; ++k)
        forward(k);
    for (int k = 0; k < all; ++k) {
        if (ahead + k < all)
            forward(ahead + k);
        backward((v - 1 - turns[k].chunk) * p + device, turns[k].microbatch);
    }
}

namespace {

// PyTorch: as many rounds of one group as there are times p micro-batches; they must come out even.
int rounds_of(int devices, int microbatches) { return std::max(1, microbatches / devices); }

bool fills_rounds(int devices, int microbatches) {
    return microbatches > 0 && microbatches % rounds_of(devices, microbatches) == 0;
}

// Megatron: at least p, at most m, and no last group that is shorter than p.
bool is_group(int group, int devices, int microbatches) {
    return group >= devices && group <= microbatches && (microbatches % group == 0 || microbatches % group >= devices);
}

int group_of_even_rounds(const Shape& shape) {
    const int p = shape.devices, m = shape.microbatches;
    if (fills_rounds(p, m))
        return m / rounds_of(p, m);
    int less = m, more = m;
    while (!fills_rounds(p, less))
        --less;
    while (!fills_rounds(p, more))
        ++more;
    int group = p;  // m is one, so that the loop ends
    while (!is_group(group, p, m))
        ++group;
    fail_about({Setting::MicroBatches, Setting::Group},
               "{} micro-batches on {} devices make {} rounds, which must be equally long\n  help: take {} or {} "
               "micro-batches, "
               "or groups of {}",
               m, p, rounds_of(p, m), less, more, group);
}

}  // namespace

int group_size(const Shape& shape, const ScheduleOptions& options) {
    const int p = shape.devices, m = shape.microbatches, group = options.group;
    if (group == 0)
        return group_of_even_rounds(shape);
    if (is_group(group, p, m))
        return group;
    if (m < p)
        fail_about(
            {Setting::Group, Setting::MicroBatches},
            "a group of {} micro-batches for {} micro-batches on {} devices: a group has at least as many as there are "
            "devices\n  help: leave the group out, or take {} micro-batches or more",
            group, m, p, p);
    std::string legal;
    for (int distance = 1; distance <= std::max(group, m) && legal.empty(); ++distance)
        for (const int near : {group - distance, group + distance})
            if (is_group(near, p, m))
                legal += (legal.empty() ? "" : " or ") + std::to_string(near);
    fail_about(
        {Setting::Group},
        "a group of {} micro-batches: it must be from {} (devices) to {} (micro-batches) and leave no last group "
        "shorter than {}\n  help: {}",
        group, p, m, p, legal.empty() ? "leave the group out" : "take groups of " + legal);
}

// Interleaved 1F1B (Narayanan et al., 2021): device d holds stages d, d + p, ...; groups of
// micro-batches go through one chunk after the other, backwards in the opposite order of chunks.
Tasks interleaved(const Holding& own, const ScheduleOptions& options) {
    const int p = own.shape.devices, v = own.shape.stages / p, group = group_size(own.shape, options);
    Tasks order;
    take_turns(own, group, 2 * (p - 1 - own.device) + (v - 1) * group, order, [&](int stage, int microbatch) {
        order.push_back({Op::Backward, stage, microbatch});
    });
    return order;
}

// Breadth-first (Lamy-Poirier, 2022; LoopedBFS): every chunk runs all its micro-batches at once. The
// backwards drain last in, first out, as in PyTorch.
Tasks breadth_first(const Holding& own, const ScheduleOptions& options) {
    const int m = own.shape.microbatches;
    const bool fifo = options.drain == ScheduleOptions::Drain::Fifo;
    Tasks order;
    for (const int stage : own.stages)
        for (int mb = 0; mb < m; ++mb)
            order.push_back({Op::Forward, stage, mb});
    for (auto stage = own.stages.rbegin(); stage != own.stages.rend(); ++stage)
        for (int mb = 0; mb < m; ++mb)
            order.push_back({Op::Backward, *stage, fifo ? mb : m - 1 - mb});
    return order;
}

// Evaluation: groups of p micro-batches, so that a device with several stages never waits for a
// round trip of one of them.
Tasks forward_only(const Holding& own, const ScheduleOptions&) {
    const auto chunks = static_cast<int>(own.stages.size()), all = static_cast<int>(own.microbatches.size());
    Tasks order;
    for (const Turn& turn : turns_in_groups(chunks, all, own.shape.devices))
        order.push_back({Op::Forward, own.stages[turn.chunk], own.microbatches[turn.microbatch]});
    return order;
}

}  // namespace pw
