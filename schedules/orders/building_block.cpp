#include "schedules/orders/building_block.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

namespace pw {

namespace {

// A pass of the block of a device, in the slot of the first micro-batch.
struct BlockPass {
    int slot, device;
    Op op;
    int stage;
};

using Passes = std::vector<BlockPass>;

// Appends the block of a device. Each W takes the first free slot after its I.
void append_block(const BuildingBlock& block, int device, int stages, Passes& passes) {
    const int down = device, up = stages - 1 - device;
    const Passes fixed = {{block.forward_down, device, Op::Forward, down},
                          {block.forward_up, device, Op::Forward, up},
                          {block.input_up, device, Op::BackwardInput, up},
                          {block.input_down, device, Op::BackwardInput, down}};
    std::array<bool, BuildingBlock::kSlots> taken{};
    for (const BlockPass& pass : fixed) {
        assert(!taken[pass.slot % BuildingBlock::kSlots]);
        taken[pass.slot % BuildingBlock::kSlots] = true;
        passes.push_back(pass);
    }
    for (const BlockPass& input : {fixed[2], fixed[3]}) {
        int slot = input.slot + 1;
        while (std::exchange(taken[slot % BuildingBlock::kSlots], true))
            ++slot;
        passes.push_back({slot, device, Op::BackwardWeight, input.stage});
    }
}

// Calls visit(pass, micro-batch) for the repeated blocks, in the order of their slots.
template <class Visit>
void for_each_repeated(const Passes& passes, int microbatches, Visit visit) {
    constexpr int kSlots = BuildingBlock::kSlots;
    std::array<Passes, kSlots> classes;  // by slot modulo kSlots
    int last = 0;
    for (const BlockPass& pass : passes) {
        classes[pass.slot % kSlots].push_back(pass);
        last = std::max(last, pass.slot + (microbatches - 1) * kSlots);
    }
    for (Passes& same : classes)
        std::stable_sort(same.begin(), same.end(), [](const auto& a, const auto& b) { return a.slot < b.slot; });
    std::array<std::size_t, kSlots> first{};  // of a class, the first pass that is not over
    for (int slot = 0; slot <= last; ++slot) {
        const Passes& same = classes[slot % kSlots];
        std::size_t& begin = first[slot % kSlots];
        while (begin < same.size() && same[begin].slot + microbatches * kSlots <= slot)
            ++begin;
        for (std::size_t k = begin; k < same.size() && same[k].slot <= slot; ++k)
            visit(same[k], (slot - same[k].slot) / kSlots);
    }
}

// Moves passes in turn into the earliest slots of their devices.
class Squeezed {
public:
    // `release` is the operation that ends the life of an activation.
    Squeezed(const Shape& shape, int most, Op release)
        : most_(most), release_(release), rows_(shape.devices), slots_{{rows(shape), rows(shape), rows(shape)}} {}

    void put(int device, const Task& task) {
        std::vector<Placed>& row = rows_[device];
        std::vector<int>& before = slots(task.op)[task.stage];
        const int from = std::max(earliest(task), before.empty() ? 0 : before.back() + 1);
        auto at = row.end();
        int slot = row.empty() ? from : std::max(from, row.back().slot + 1);
        for (auto later = row.end(); later != row.begin() && (later - 1)->slot >= from;) {
            --later;
            if (task.op == Op::Forward && later->held >= most_)
                break;
            const int free = later == row.begin() ? from : std::max(from, (later - 1)->slot + 1);
            if (free < later->slot) {
                slot = free;
                at = later;
            }
        }
        int held = at == row.begin() ? 0 : (at - 1)->held - ((at - 1)->task.op == release_);
        held += task.op == Op::Forward;
        assert(held <= most_);
        const int change = (task.op == Op::Forward) - (task.op == release_);
        for (auto later = at; later != row.end(); ++later)
            later->held += change;
        row.insert(at, {slot, held, task});
        before.push_back(slot);
    }

    // Returns the F and I of each device, in the order of their slots.
    std::vector<Tasks> forwards_and_inputs() const {
        std::vector<Tasks> orders;
        for (const std::vector<Placed>& row : rows_) {
            Tasks& order = orders.emplace_back();
            for (const Placed& placed : row)
                if (placed.task.op != Op::BackwardWeight)
                    order.push_back(placed.task);
        }
        return orders;
    }

private:
    struct Placed {
        int slot, held;  // activations that the device holds during the task
        Task task;
    };
    using SlotsOfStages = std::vector<std::vector<int>>;  // [stage][micro-batch]

    static SlotsOfStages rows(const Shape& shape) { return SlotsOfStages(shape.stages); }
    SlotsOfStages& slots(Op op) { return slots_[op == Op::Forward ? 0 : op == Op::BackwardInput ? 1 : 2]; }

    // Returns the slot after its input: the slot of the stage before, in the chain of all stages forward and back.
    int earliest(const Task& task) {
        const auto after = [&](Op op, int stage) { return slots(op)[stage][task.microbatch] + 1; };
        if (task.op == Op::BackwardWeight)
            return after(Op::BackwardInput, task.stage);
        if (task.op == Op::Forward)
            return task.stage == 0 ? 0 : after(Op::Forward, task.stage - 1);
        return task.stage + 1 == std::ssize(slots_[0]) ? after(Op::Forward, task.stage)
                                                       : after(Op::BackwardInput, task.stage + 1);
    }

    const int most_;
    const Op release_;
    std::vector<std::vector<Placed>> rows_;  // by device
    std::array<SlotsOfStages, 3> slots_;     // of F, I and W
};

struct Slotted {
    int slots = 0;  // until the last task has ended
    std::vector<Tasks> orders = {};
};

// Runs the F and I of each device in their order, slot by slot, and adds W: in slots in which a device would wait or
// has no space for the next F.
class WeightFiller {
public:
    WeightFiller(const Shape& shape, std::vector<Tasks> orders, int most)
        : stages_(shape.stages),
          most_(most),
          devices_(shape.devices),
          awake_(shape.devices),
          forwards_(shape.stages),
          inputs_(shape.stages) {
        for (int device = 0; device < shape.devices; ++device)
            devices_[device].fixed = std::move(orders[device]);
    }

    Slotted run() {
        std::vector<int> awake;
        for (int device = 0; device < std::ssize(devices_); ++device)
            awake.push_back(device);
        Slotted result;
        for (; !awake.empty(); ++result.slots) {
            std::vector<int> next;
            const auto wake = [&](int device) {
                if (!std::exchange(awake_[device], true))
                    next.push_back(device);
            };
            Tasks ran;
            for (const int device : awake)
                if (run_one(devices_[device])) {
                    ran.push_back(devices_[device].order.back());
                    wake(device);
                }
            for (const Task& task : ran)
                if (task.op == Op::Forward) {
                    ++forwards_[task.stage];
                    if (task.stage + 1 < stages_)
                        wake(device_of(task.stage + 1));
                } else if (task.op == Op::BackwardInput) {
                    ++inputs_[task.stage];
                    if (task.stage > 0)
                        wake(device_of(task.stage - 1));
                }
            awake = std::move(next);
            awake_.assign(awake_.size(), false);
        }
        for (Filled& device : devices_)
            result.orders.push_back(std::move(device.order));
        return result;
    }

private:
    struct Filled {
        Tasks fixed, waiting, order;       // waiting: the W of each I, oldest first
        std::size_t next = 0, oldest = 0;  // of fixed and of waiting
        int held = 0;
    };

    int device_of(int stage) const { return std::min(stage, stages_ - 1 - stage); }

    // Micro-batches run in order, so the number of passes that have ended says which ones.
    bool may_run(const Filled& device, const Task& task) const {
        if (task.op == Op::Forward)
            return device.held < most_ && (task.stage == 0 || forwards_[task.stage - 1] > task.microbatch);
        const int ended = task.stage + 1 == stages_ ? forwards_[task.stage] : inputs_[task.stage + 1];
        return ended > task.microbatch;
    }

    bool run_one(Filled& device) {
        if (device.next < device.fixed.size() && may_run(device, device.fixed[device.next])) {
            const Task& task = device.order.emplace_back(device.fixed[device.next++]);
            if (task.op == Op::Forward)
                ++device.held;
            else
                device.waiting.emplace_back(Op::BackwardWeight, task.stage, task.microbatch);
            return true;
        }
        if (device.oldest == device.waiting.size())
            return false;
        device.order.push_back(device.waiting[device.oldest++]);
        --device.held;
        return true;
    }

    const int stages_, most_;
    std::vector<Filled> devices_;
    std::vector<char> awake_;             // by device: listed for the next slot
    std::vector<int> forwards_, inputs_;  // by stage: passes that have ended
};

Slotted slotted(const Shape& shape, const Passes& passes, int most, bool with_weights) {
    Squeezed squeezed(shape, most, with_weights ? Op::BackwardWeight : Op::BackwardInput);
    for_each_repeated(passes, shape.microbatches, [&](const BlockPass& pass, int microbatch) {
        if (with_weights || pass.op != Op::BackwardWeight)
            squeezed.put(pass.device, {pass.op, pass.stage, microbatch});
    });
    return WeightFiller(shape, squeezed.forwards_and_inputs(), most).run();
}

}  // namespace

// Without W in the block, F and I move further ahead. That is better unless space is short: then F waits for W, in
// every micro-batch.
std::vector<Tasks> orders_of_blocks(const Shape& shape, BuildingBlock (*block_of)(int devices, int device), int most) {
    Passes passes;
    for (int device = 0; device < shape.devices; ++device)
        append_block(block_of(shape.devices, device), device, shape.stages, passes);
    Slotted without = slotted(shape, passes, most, false), with = slotted(shape, passes, most, true);
    return std::move(without.slots <= with.slots ? without.orders : with.orders);
}

}  // namespace pw
