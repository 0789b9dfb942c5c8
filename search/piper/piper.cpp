#include "search/piper/piper.h"

#include "search/piper/piper_search.h"
#include "workloads/bounded.h"
#include "workloads/error.h"
#include "workloads/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pw {

namespace {

struct FoundSplit {
    PiperSplit split;                   // empty: none
    PiperGoal goal = PiperGoal::Least;  // that chose the layers to recompute
    double most = kNever;
    double lower_bound = 0;
    std::int64_t stages_seen = 0;
};

PiperInstance restricted(PiperInstance instance, const PiperChoices& choices) {
    for (PiperLayer& layer : instance.layers) {
        for (auto at = layer.options.begin(); at != layer.options.end();) {
            if (!choices.recompute)
                std::erase_if(at->second, [](const PiperOption& option) { return option.recompute; });
            at = at->second.empty() || (at->first > 1 && !choices.tensor_parallel) ? layer.options.erase(at) : ++at;
        }
        if (layer.options.empty() || layer.options.begin()->first > instance.devices)
            fail(
                "layer '{}' runs in no allowed way on {} devices: allow tensor parallelism or recomputation, or give "
                "it a cost for tensor degree 1",
                layer.name, instance.devices);
    }
    return instance;
}

Successors against_data(const PiperInstance& instance) {
    Successors graph(instance.layers.size());
    for (const PiperEdge& edge : instance.edges)
        graph[edge.to].push_back(edge.from);
    return graph;
}

void keep_better(FoundSplit& found, const std::optional<PiperSplit>& split, double most, PiperGoal goal) {
    if (!split || most >= found.most)
        return;
    found.split = *split;
    found.most = most;
    found.goal = goal;
}

// The less a bound allows, the sooner it is tried. The first bound that leaves a split leaves the best split.
std::optional<PiperSplit> first_below(PiperSearch& search, double most, PiperGoal goal) {
    const double lower = search.work_bound();
    for (double gap = lower / 16; goal != PiperGoal::Memory && most == kNever && gap < 4 * lower; gap *= 2)
        if (const auto split = search.below(lower + gap, goal))
            return split;
    return search.below(most, goal);
}

// Quick enough to need no deadline.
void search_orders(const PiperInstance& instance, bool data_parallel, PiperGoal goal, FoundSplit& found) {
    Deadline none(1e9);
    for (const Ready tie : {Ready::LatestFirst, Ready::SmallestFirst, Ready::LargestFirst}) {
        const Downsets suffixes = prefixes_of(topological_order(against_data(instance), tie));
        PiperSearch search(instance, data_parallel, suffixes, none);
        const auto split = first_below(search, found.most, goal);
        keep_better(found, split, search.most(), goal);
        found.lower_bound = std::max(found.lower_bound, goal == PiperGoal::Memory ? 0 : search.work_bound());
        found.stages_seen += search.stages_seen();
    }
}

void search_all(PiperSearch& search, PiperGoal goal, Deadline& deadline, FoundSplit& found) {
    const auto split = search.below(found.most, goal);
    if (deadline.passed())
        return;
    keep_better(found, split, search.most(), goal);
    found.lower_bound = found.most;
}

FoundSplit fastest(const PiperInstance& instance, bool data_parallel, const SearchLimits& limits) {
    Deadline deadline(limits.seconds, 4096, limits.should_stop);
    FoundSplit found;
    search_orders(instance, data_parallel, PiperGoal::Greedy, found);
    const auto sets = downsets_of(against_data(instance), limits.downsets);
    if (!sets)
        return found;
    PiperSearch search(instance, data_parallel, *sets, deadline);
    if (!search.is_feasible_size())
        return found;
    const auto relaxed = search.below(found.most, PiperGoal::Part);
    if (!deadline.passed()) {
        found.lower_bound = relaxed ? search.most() : found.most;
        search_all(search, PiperGoal::Least, deadline, found);
    }
    found.stages_seen += search.stages_seen();
    return found;
}

// The split whose fullest device needs the least memory.
FoundSplit smallest(const PiperInstance& instance, bool data_parallel, const SearchLimits& limits) {
    Deadline deadline(limits.seconds, 4096, limits.should_stop);
    FoundSplit found;
    search_orders(instance, data_parallel, PiperGoal::Memory, found);
    const auto sets = downsets_of(against_data(instance), limits.downsets);
    if (!sets)
        return found;
    PiperSearch search(instance, data_parallel, *sets, deadline);
    if (search.is_feasible_size())
        search_all(search, PiperGoal::Memory, deadline, found);
    found.stages_seen += search.stages_seen();
    return found;
}

PlannedStage planned(const PiperInstance& instance, const PiperSplitStage& stage, PiperGoal goal) {
    std::vector<bool> own(instance.layers.size());
    for (const int layer : stage.layers)
        own[layer] = true;
    const PiperStage::Choice choice = PiperStage(instance, stage.layers, own, stage.degree, stage.replicas)
                                          .choice(goal, stage.in_flight, instance.memory);
    return {.layers = stage.layers,
            .replicas = stage.replicas,
            .tensor_degree = stage.degree,
            .recomputed = choice.recomputed,
            .time = choice.time,
            .memory = bounded(std::ceil(choice.memory))};
}

std::optional<Shortage> shortage_of(const Partition& partition, double memory) {
    std::optional<Shortage> shortage;
    for (std::size_t stage = 0; stage < partition.stages.size(); ++stage) {
        const Bytes needs = partition.stages[stage].memory;
        if (static_cast<double>(needs) > std::ceil(memory) && (!shortage || needs > shortage->needs))
            shortage = {static_cast<int>(stage), needs, bounded(std::floor(memory))};
    }
    return shortage;
}

}  // namespace

Partition piper_partition(const PiperInstance& instance, const PiperChoices& choices, const SearchLimits& limits) {
    const PiperInstance allowed = restricted(instance, choices);
    FoundSplit found = fastest(allowed, choices.data_parallel, limits);
    if (found.split.empty())
        found = smallest(allowed, choices.data_parallel, limits);
    Partition partition;
    partition.candidates = found.stages_seen;
    for (const PiperSplitStage& stage : found.split)
        partition.stages.push_back(planned(allowed, stage, found.goal));
    partition.shortage = shortage_of(partition, allowed.memory);
    if (partition.shortage)
        partition.stages.clear();
    for (const PlannedStage& stage : partition.stages)
        partition.objective = std::max(partition.objective, stage.time);
    if (!partition.stages.empty())
        check_lower_bound(found.lower_bound, found.most, "the time per micro-batch");
    // The search adds in another order: after a complete one the value of the stages is proven to the last digit.
    const bool complete = found.lower_bound >= found.most;
    partition.lower_bound = complete ? partition.objective : std::min(found.lower_bound, partition.objective);
    return partition;
}

}  // namespace pw
