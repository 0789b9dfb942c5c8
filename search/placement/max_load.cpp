#include "search/placement/max_load.h"

#include "search/placement/max_load_search.h"
#include "workloads/bounded.h"
#include "workloads/error.h"
#include "workloads/lower_bound.h"

#include <algorithm>
#include <cmath>

namespace pw {

namespace {

struct FoundPlacement {
    PlacedStages placement;  // empty: none
    double load = kNever;
    double lower_bound = 0;
    std::int64_t stages_seen = 0;
};

double most_of(const PlacedStages& placement) {
    double most = 0;
    for (const PlacedGroups& stage : placement)
        most = std::max(most, stage.load);
    return most;
}

void keep_better(FoundPlacement& found, std::optional<PlacedStages> placement) {
    if (!placement || most_of(*placement) >= found.load)
        return;
    found.load = most_of(*placement);
    found.placement = std::move(*placement);
}

// Quick enough to need no deadline.
void search_orders(const PlacementGroups& graph, const Devices& devices, FoundPlacement& found) {
    Deadline none(1e9);
    for (const Ready tie : {Ready::LatestFirst, Ready::SmallestFirst, Ready::LargestFirst}) {
        const Downsets prefixes = prefixes_of(topological_order(graph.successors, tie));
        MaxLoadSearch search(graph, devices, prefixes, none);
        keep_better(found, search.below(found.load));
        found.stages_seen += search.stages_seen();
    }
}

// No load is greater than all time and all transfers together.
double greatest_load(const PlacementGroups& graph) {
    double load = 1;
    for (const PlacementGroup& group : graph.groups)
        load += group.accelerator_time + group.cpu_time;
    for (const PlacementNet& net : graph.nets)
        load += net.cost;
    return load;
}

// A greater bound costs more to refute: try small ones first, so that a limit leaves a lower bound.
void search_all(const PlacementGroups& graph, const Devices& devices, const Downsets& sets, Deadline& deadline,
                FoundPlacement& found) {
    MaxLoadSearch search(graph, devices, sets, deadline);
    const double top = std::min(found.load, greatest_load(graph));
    double step = (top - found.lower_bound) / 64;
    for (bool done = top <= found.lower_bound; !done; step *= 8) {
        const double bound = std::min(found.lower_bound + step, top);
        const auto placement = search.below(bound);
        if (deadline.passed())
            break;
        keep_better(found, placement);
        done = placement || bound == top;
        found.lower_bound = done ? found.load : bound;
    }
    found.stages_seen += search.stages_seen();
}

FoundPlacement search(const PlacementGroups& graph, const Devices& devices, const SearchLimits& limits,
                      Deadline& deadline) {
    FoundPlacement found;
    found.lower_bound = average_load(graph, devices);
    search_orders(graph, devices, found);
    if (const auto sets = downsets_of(graph.successors, limits.downsets))
        search_all(graph, devices, *sets, deadline, found);
    return found;
}

double size_of(const PlacementGroups& graph, const PlacedGroups& stage) {
    double size = 0;
    for (const int group : stage.groups)
        size += graph.groups[group].size;
    return size;
}

PlannedStage planned(const PlacementGroups& graph, const PlacedGroups& stage) {
    PlannedStage made;
    for (const int group : stage.groups) {
        const std::vector<int>& nodes = graph.groups[group].nodes;
        made.layers.insert(made.layers.end(), nodes.begin(), nodes.end());
    }
    std::sort(made.layers.begin(), made.layers.end());
    made.on_cpu = stage.on_cpu;
    made.time = stage.load;
    made.memory = bounded(std::ceil(size_of(graph, stage)));
    return made;
}

// The placement whose fullest accelerator needs the least memory, if there is no CPU to help.
FoundPlacement least_memory(const PlacementGroups& graph, const Devices& devices, const SearchLimits& limits) {
    PlacementGroups sizes = graph;
    sizes.nets.clear();
    for (PlacementGroup& group : sizes.groups) {
        group.accelerator_time = group.size;
        group.nets.clear();
    }
    Deadline deadline(limits.seconds, 4096, limits.should_stop);
    FoundPlacement found = search(sizes, {devices.accelerators, 0}, limits, deadline);
    for (PlacedGroups& stage : found.placement)
        stage.load = load_of(graph, stage.groups, false);
    found.load = most_of(found.placement);
    found.lower_bound = average_load(graph, devices);
    return found;
}

std::optional<Shortage> shortage_of(const PlacementGroups& graph, const PlacedStages& placement, double memory) {
    std::optional<Shortage> shortage;
    double most = memory;
    for (std::size_t stage = 0; stage < placement.size(); ++stage) {
        const double size = size_of(graph, placement[stage]);
        if (size > most && !placement[stage].on_cpu)
            shortage = {static_cast<int>(stage), bounded(std::ceil(size)), bounded(std::floor(memory))};
        most = std::max(most, size);
    }
    return shortage;
}

void refuse_homeless(const PlacementInstance& instance) {
    for (const PlacementNode& node : instance.nodes)
        if (!node.on_accelerator && instance.cpus == 0)
            fail("node '{}' runs on no device: it is not for accelerators and there is no CPU; give one or more CPUs",
                 node.name);
}

}  // namespace

Partition max_load_partition(const PlacementInstance& instance, const SearchLimits& limits) {
    refuse_homeless(instance);
    const PlacementGroups graph = group(instance);
    const Devices devices{instance.accelerators, instance.cpus, instance.memory};
    Deadline deadline(limits.seconds, 4096, limits.should_stop);
    FoundPlacement found = search(graph, devices, limits, deadline);
    if (found.placement.empty())
        found = least_memory(graph, devices, limits);
    Partition partition;
    partition.candidates = found.stages_seen;
    partition.shortage = shortage_of(graph, found.placement, devices.memory);
    if (partition.shortage)
        return partition;
    partition.objective = found.load;
    check_lower_bound(found.lower_bound, found.load, "the load");
    partition.lower_bound = std::min(found.lower_bound, found.load);
    for (const PlacedGroups& stage : found.placement)
        partition.stages.push_back(planned(graph, stage));
    return partition;
}

}  // namespace pw
