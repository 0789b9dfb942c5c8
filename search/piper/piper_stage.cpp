#include "search/piper/piper_stage.h"

#include "search/partition.h"

#include <algorithm>
#include <limits>

namespace pw {

namespace {

// Bytes that a layer of the stage moves per micro-batch over the stage's border.
double border_bytes(const PiperInstance& instance, const PiperLayer& layer, const PiperOption& option,
                    const std::vector<bool>& own) {
    double bytes = 0;
    for (std::size_t i = 0; i < layer.in.size(); ++i)
        if (const PiperEdge& edge = instance.edges[layer.in[i]]; !own[edge.from])
            bytes += 2 * (edge.bytes + option.sync_in[i]);
    for (std::size_t i = 0; i < layer.out.size(); ++i)
        if (const PiperEdge& edge = instance.edges[layer.out[i]]; !own[edge.to])
            bytes += 2 * (edge.bytes + option.sync_out[i]);
    return bytes;
}

}  // namespace

PiperStage::PiperStage(const PiperInstance& instance, const std::vector<int>& layers, const std::vector<bool>& own,
                       int degree, int replicas) {
    members_.reserve(layers.size());
    const double share = 4.0 * (replicas - 1) / replicas / instance.microbatches;
    for (const int number : layers) {
        const PiperLayer& layer = instance.layers[number];
        const std::vector<PiperOption>& options = layer.options.at(degree);
        const auto way_of = [&](const PiperOption& option) {
            const double bytes = border_bytes(instance, layer, option, own) / replicas + share * option.parameters;
            return OptionCost{bytes / instance.bandwidth + option.time / replicas, option.memory_each, option.memory,
                              option.recompute};
        };
        members_.push_back({number, {way_of(options.front()), way_of(options.back())}});
    }
}

const PiperStage::OptionCost& PiperStage::fastest(const Member& member) {
    const auto& [a, b] = member.options;
    if (a.time != b.time)
        return a.time < b.time ? a : b;
    return a.recompute ? b : a;
}

const PiperStage::OptionCost& PiperStage::smallest(const Member& member, int in_flight) {
    const auto& [a, b] = member.options;
    return b.memory_with(in_flight) < a.memory_with(in_flight) ? b : a;
}

double PiperStage::memory_of_fastest(int in_flight) const {
    double memory = 0;
    for (const Member& member : members_)
        memory += fastest(member).memory_with(in_flight);
    return memory;
}

double PiperStage::memory_of_smallest(int in_flight) const {
    double memory = 0;
    for (const Member& member : members_)
        memory += smallest(member, in_flight).memory_with(in_flight);
    return memory;
}

// The bytes that each layer would save, and its additional time, with its smallest option instead of its fastest one.
RecomputeChoice PiperStage::savings(int in_flight) const {
    std::vector<Saving> savings;
    savings.reserve(members_.size());
    for (std::size_t i = 0; i < members_.size(); ++i) {
        const OptionCost &fast = fastest(members_[i]), &small = smallest(members_[i], in_flight);
        const double bytes = fast.memory_with(in_flight) - small.memory_with(in_flight);
        if (bytes > 0)
            savings.push_back({small.time - fast.time, bytes, static_cast<int>(i)});
    }
    return RecomputeChoice(std::move(savings));
}

double PiperStage::least(PiperGoal goal, int in_flight, double memory) const {
    if (goal == PiperGoal::Memory)
        return memory_of_smallest(in_flight);
    if (goal != PiperGoal::Part)
        return choice(goal, in_flight, memory).time;
    double time = 0;
    for (const Member& member : members_)
        time += fastest(member).time;
    const double missing = memory_of_fastest(in_flight) - memory;
    if (missing <= 0)
        return time;
    const RecomputeChoice choice = savings(in_flight);
    return missing > choice.most_bytes() ? kNever : time + choice.fractional(missing);
}

PiperStage::Choice PiperStage::choice(PiperGoal goal, int in_flight, double memory) const {
    std::vector<bool> saves(members_.size(), goal == PiperGoal::Memory);
    const double missing = memory_of_fastest(in_flight) - memory;
    if (missing > 0 && goal != PiperGoal::Memory) {
        const RecomputeChoice choice = savings(in_flight);
        if (missing > choice.most_bytes())
            return {kNever, memory_of_smallest(in_flight), {}};
        for (const int member : goal == PiperGoal::Least ? choice.cheapest(missing) : choice.greedy(missing))
            saves[member] = true;
    }
    Choice made;
    for (std::size_t i = 0; i < members_.size(); ++i) {
        const OptionCost& cost = saves[i] ? smallest(members_[i], in_flight) : fastest(members_[i]);
        made.time += cost.time;
        made.memory += cost.memory_with(in_flight);
        if (cost.recompute)
            made.recomputed.push_back(members_[i].layer);
    }
    return made;
}

}  // namespace pw
