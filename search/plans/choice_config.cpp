// The config of a choice and a split, and their text.
#include "job/plan.h"
#include "schedules/orders/schedule.h"
#include "search/plans/plan_choice.h"
#include "workloads/stages/stage_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace pw {

namespace {

// Adds members that share a bandwidth. Entries with the same remaining members become one, with the smaller bandwidth.
template <class Group, class Members>
void add_group(std::vector<Group>& groups, Group group, Members Group::*members) {
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const Group& other) { return other.*members == group.*members; });
    if (same == groups.end())
        groups.push_back(std::move(group));
    else
        same->bandwidth = std::min(same->bandwidth, group.bandwidth);
}

// Removes the hosts that are not chosen, and switches that no message passes: those of no host, and those of all.
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
// devices in its order; otherwise they keep the names and hosts from it.
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

// Keeps the entries of a list with one for each device.
void choose_entries(std::vector<int>& list, std::size_t all, const std::vector<int>& devices) {
    if (list.size() != all)
        return;
    std::vector<int> chosen;
    for (const int device : devices)
        chosen.push_back(list[static_cast<std::size_t>(device)]);
    list = std::move(chosen);
}

}  // namespace

Setup setup_of(const Setup& setup, const PlanChoice& choice) {
    Setup chosen = setup;
    choose_devices(setup.cluster, choice.devices, chosen.cluster);
    choose_entries(chosen.run.gpus, setup.cluster.devices.size(), choice.devices);
    choose_entries(chosen.run.sms, setup.cluster.devices.size(), choice.devices);
    chosen.pipeline.schedule = choice.schedule;
    chosen.pipeline.stages = choice.stages;
    chosen.pipeline.micro_batches = choice.micro_batches;
    chosen.pipeline.micro_batch_size = choice.micro_batch_size;
    chosen.pipeline.mini_batch = std::int64_t{choice.micro_batches} * choice.micro_batch_size;
    std::vector<int> recomputed(static_cast<std::size_t>(choice.recomputed));
    std::iota(recomputed.begin(), recomputed.end(), 0);
    chosen.pipeline.recompute = {.stages = std::move(recomputed), .saved = choice.saved, .ahead = choice.ahead};
    chosen.pipeline.recompute_layers = choice.layers;
    chosen.pipeline.current_plan.clear();
    chosen.pipeline.replicas = choice.replicas;
    chosen.pipeline.copies = choice.copies;
    if (schedule_named(setup, choice.schedule).needs_costs)
        chosen.pipeline.effort *= kEffortOfSplit;
    chosen.places.clear();  // the file's places no longer hold
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

std::string print_variant(const PlanChoice& choice) {
    std::vector<std::string> parts;
    if (!choice.replicas.empty() && choice.stages > 1)
        parts.push_back(fmt::format("replicas {}", fmt::join(choice.replicas, " ")));
    if (choice.copies > 1)
        parts.push_back(fmt::format("{} replicas of the pipeline", choice.copies));
    if (choice.recomputed > 0)
        parts.push_back(fmt::format("{} of the stages recomputed", choice.recomputed));
    if (choice.layers.size() > 3)
        parts.back() += fmt::format(" in {} layers", choice.layers.size());
    else if (!choice.layers.empty())
        parts.back() += fmt::format(" in {}", fmt::join(choice.layers, " "));
    if (choice.saved > 0)
        parts.push_back(
            fmt::format("{} micro-batch{} of each window saved", choice.saved, choice.saved == 1 ? "" : "es"));
    if (choice.ahead == Recomputation::kByCosts)
        parts.emplace_back("in idle time");
    else if (choice.ahead > 0)
        parts.push_back(fmt::format("{} recomputed ahead", choice.ahead));
    return fmt::format("{}", fmt::join(parts, ", "));
}

std::string print(const PlanChoice& choice) {
    std::string text =
        choice.is_data_parallel()
            ? fmt::format("data parallel on {} devices, {} micro-batches of {}, {}", choice.devices.size(),
                          choice.micro_batches, choice.micro_batch_size, choice.schedule)
            : fmt::format("{}, {} stage{} on {} device{}, {} micro-batches of {}", choice.schedule, choice.stages,
                          choice.stages == 1 ? "" : "s", choice.devices.size(), choice.devices.size() == 1 ? "" : "s",
                          choice.micro_batches, choice.micro_batch_size);
    if (const std::string variant = print_variant(choice); !variant.empty())
        text += ", " + variant;
    return text;
}

}  // namespace pw
