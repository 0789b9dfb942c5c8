// The setup of a choice and a split.
#include "job/plan.h"
#include "job/setup/rank_groups.h"
#include "search/choice_ways.h"
#include "search/plan_choice.h"
#include "workloads/stages/layout_notation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

namespace pw {

namespace {

// Adds members that share a bandwidth. Entries with the same remaining members are merged, with the smaller bandwidth.
template <class Group, class Members>
void add_group(std::vector<Group>& groups, Group group, Members Group::*members) {
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const Group& other) { return other.*members == group.*members; });
    if (same == groups.end())
        groups.push_back(std::move(group));
    else
        same->bandwidth = std::min(same->bandwidth, group.bandwidth);
}

// Removes the hosts that are not chosen, and switches that no message passes: switches of no host, and of all hosts.
void choose_switches(const ClusterConfig& all, ClusterConfig& chosen) {
    std::set<std::string> hosts;
    for (const DeviceConfig& device : chosen.devices)
        hosts.insert(device.host);
    chosen.switches.clear();
    for (ClusterConfig::Switch group : all.switches) {
        std::erase_if(group.hosts, [&](const std::string& host) { return !hosts.contains(host); });
        if (!group.hosts.empty() && group.hosts.size() < hosts.size())
            add_group(chosen.switches, std::move(group), &ClusterConfig::Switch::hosts);
    }
}

// Renumbers links of pairs and shared capacities with the chosen devices. A rank table holds only for all of its
// devices in its order. Otherwise the devices keep the names and hosts from the table.
void choose_devices(const ClusterConfig& all, const std::vector<int>& devices, ClusterConfig& chosen) {
    std::vector<int> number_of(all.devices.size(), -1);
    chosen.devices.clear();
    for (const int device : devices) {
        number_of[static_cast<std::size_t>(device)] = static_cast<int>(chosen.devices.size());
        chosen.devices.push_back(all.devices[device]);
    }
    chosen.links.clear();
    for (const ClusterConfig::PairLink& pair : all.links)
        if (number_of[pair.from] >= 0 && number_of[pair.to] >= 0)
            chosen.links.push_back({number_of[pair.from], number_of[pair.to], pair.link});
    chosen.shared.clear();
    for (const ClusterConfig::Shared& shared : all.shared) {
        ClusterConfig::Shared left{{}, shared.bandwidth};
        for (const int device : shared.devices)
            if (number_of[device] >= 0)
                left.devices.push_back(number_of[device]);
        std::sort(left.devices.begin(), left.devices.end());
        if (!left.devices.empty())
            add_group(chosen.shared, std::move(left), &ClusterConfig::Shared::devices);
    }
    if (!all.switches.empty())
        choose_switches(all, chosen);
    if (devices.size() != all.devices.size() || !std::is_sorted(devices.begin(), devices.end()))
        chosen.rank_table.clear();
}

// Keeps the entries of a list with an entry for each device.
void choose_entries(std::vector<int>& list, std::size_t all, const std::vector<int>& devices) {
    if (list.size() != all)
        return;
    std::vector<int> chosen;
    for (const int device : devices)
        chosen.push_back(list[static_cast<std::size_t>(device)]);
    list = std::move(chosen);
}

void choose_degrees(const PlanChoice& choice, Setup& chosen) {
    if (!choice.hosts.empty())
        choose_hosts(chosen, choice.hosts);
    PipelineConfig& pipeline = chosen.pipeline;
    chosen.parallel.degrees = choice.degrees;
    chosen.parallel.of_stages = choice.of_stages;
    pipeline.split = choice.blocks.empty() ? PipelineConfig::Split::Auto : PipelineConfig::Split::Layout;
    pipeline.cuts.clear();
    pipeline.lists.clear();
    pipeline.layout =
        choice.blocks.empty()
            ? ""
            : fmt::format("{}", fmt::join(letters_of_blocks(choice.blocks, chosen.workload.transformer->mtp), "|"));
    pipeline.blocks.clear();
    divide_among_replicas(chosen, std::int64_t{choice.micro_batches} * choice.micro_batch_size * choice.degrees.data);
    // The file's places of what is chosen no longer hold.
    std::erase_if(chosen.places, [](const auto& place) {
        const std::string_view key = place.first;
        return !key.starts_with("workload") && !key.starts_with("cluster") && !key.starts_with("training");
    });
}

void choose_devices_and_layers(const Setup& setup, const PlanChoice& choice, Setup& chosen) {
    choose_devices(setup.cluster, choice.devices, chosen.cluster);
    choose_entries(chosen.run.gpus, setup.cluster.devices.size(), choice.devices);
    choose_entries(chosen.run.sms, setup.cluster.devices.size(), choice.devices);
    PipelineConfig& pipeline = chosen.pipeline;
    pipeline.micro_batches = choice.micro_batches;
    pipeline.mini_batch = std::int64_t{choice.micro_batches} * choice.micro_batch_size;
    pipeline.current_plan.clear();
    if (schedule_named(setup, choice.schedule).needs_costs)
        pipeline.options.effort *= kEffortOfSplit;
    chosen.places.clear();  // the file's places no longer hold
}

}  // namespace

std::vector<int> first_stages(int count) {
    std::vector<int> stages(static_cast<std::size_t>(count));
    std::iota(stages.begin(), stages.end(), 0);
    return stages;
}

Setup setup_of(const Setup& setup, const PlanChoice& choice) {
    Setup chosen = setup;
    PipelineConfig& pipeline = chosen.pipeline;
    pipeline.schedule = choice.schedule;
    pipeline.stages = choice.stages;
    pipeline.micro_batch_size = choice.micro_batch_size;
    pipeline.offload.states = first_stages(setup.pipeline.offload.states.empty() ? 0 : choice.stages);
    pipeline.replicas = choice.replicas;
    pipeline.copies = choice.copies;
    set_ways(choice, chosen);
    if (choice.is_of_transformer())
        choose_degrees(choice, chosen);
    else
        choose_devices_and_layers(setup, choice, chosen);
    return chosen;
}

std::optional<std::vector<int>> starts_of_ranges(const StageSplit& split) {
    std::vector<int> starts;
    int next = 0;
    for (const std::vector<int>& layers : split.layers) {
        if (next > 0)
            starts.push_back(next);
        for (const int layer : layers)
            if (layer != next++)
                return std::nullopt;
    }
    return starts;
}

void set_split(PipelineConfig& pipeline, const LayerGraph& graph, const StageSplit& split) {
    const auto names_of = [&](const std::vector<int>& layers) {
        std::vector<std::string> names;
        for (const int layer : layers)
            names.push_back(graph[static_cast<std::size_t>(layer)].name);
        return names;
    };
    const auto starts = starts_of_ranges(split);
    pipeline.split = starts ? PipelineConfig::Split::Cuts : PipelineConfig::Split::Lists;
    pipeline.cuts = starts ? names_of(*starts) : std::vector<std::string>{};
    pipeline.lists.clear();
    pipeline.layout.clear();
    pipeline.blocks.clear();
    if (!starts)
        for (const std::vector<int>& layers : split.layers)
            pipeline.lists.push_back(names_of(layers));
}

}  // namespace pw
