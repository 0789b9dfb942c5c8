#include "job/setup/rank_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace pw {

namespace {

// Returns what the tensors of a training can take. CUDA, NCCL and cuBLAS take 2 GiB, and the allocator reserves 3 %
// more than it hands out: 2.8 to 3 % in the runs of MooreThreads/SimuMax@4dcaae5 (docs/b200), 6.5 % with a pipeline.
Bytes usable_memory(Bytes memory) {
    constexpr Bytes kLibraries = Bytes{2} << 30;
    return memory == kUnlimited ? memory : std::max<Bytes>(0, memory - kLibraries) * 100 / 103;
}

// Gives a device of the plan what the devices that have the stage have in common.
void gather_holders(int stage, const ClusterRanks& ranks, Setup& setup) {
    const auto first = static_cast<std::size_t>(setup.parallel.first_rank_of(stage)),
               end = static_cast<std::size_t>(setup.parallel.first_rank_of(stage + 1));
    DeviceConfig& device = setup.cluster.devices[static_cast<std::size_t>(stage)];
    std::vector<int> makes;
    device.speed = ranks.devices[first].speed;
    device.memory = ranks.usable[first];
    for (std::size_t rank = first; rank < end; ++rank) {
        device.speed = std::min(device.speed, ranks.devices[rank].speed);
        device.memory = std::min(device.memory, ranks.usable[rank]);
        if (std::ranges::find(makes, ranks.devices[rank].make) == makes.end())
            makes.push_back(ranks.devices[rank].make);
    }
    std::ranges::sort(makes);
    if (setup.cluster.makes.size() > 1) {
        std::vector<std::string_view> kinds;
        for (const int make : makes)
            kinds.push_back(setup.cluster.makes[static_cast<std::size_t>(make)].device);
        device.name = fmt::format("{}: {}", stage, fmt::join(kinds, " and "));
    }
    std::vector<PlanMake>& known = setup.parallel.makes;
    PlanMake own{std::move(makes), setup.parallel.degrees_of(stage)};
    device.make = static_cast<int>(std::ranges::find(known, own) - known.begin());
    if (device.make == std::ssize(known))
        known.push_back(std::move(own));
}

// Collectives of a stage cannot be faster than the narrowest link between two of its ranks allows.
void limit_links_of_stages(Setup& setup) {
    ParallelConfig& own = setup.parallel;
    const ClusterConfig& cluster = setup.cluster;
    own.inside_limit = own.between_limit = std::numeric_limits<double>::infinity();
    if (!has_own_network(cluster))
        return;
    const ClusterRanks& ranks = *own.ranks;
    std::vector<int> stage_of(ranks.devices.size(), 0);
    for (int stage = 0; stage < own.degrees.pipeline; ++stage)
        for (int rank = own.first_rank_of(stage); rank < own.first_rank_of(stage + 1); ++rank)
            stage_of[static_cast<std::size_t>(rank)] = stage;
    const auto limit = [&](bool is_inside, double bandwidth) {
        double& least = is_inside ? own.inside_limit : own.between_limit;
        least = std::min(least, bandwidth);
    };
    for (const ClusterConfig::PairLink& pair : cluster.links)
        if (stage_of[static_cast<std::size_t>(pair.from)] == stage_of[static_cast<std::size_t>(pair.to)])
            limit(ranks.host[static_cast<std::size_t>(pair.from)] == ranks.host[static_cast<std::size_t>(pair.to)],
                  pair.link.bandwidth);
    for (const ClusterConfig::Shared& shared : cluster.shared) {
        std::map<int, int> members;  // by stage: a ring has a message of each
        for (const int rank : shared.devices)
            ++members[stage_of[static_cast<std::size_t>(rank)]];
        for (const auto& [stage, count] : members) {
            limit(true, shared.bandwidth / count);
            limit(false, shared.bandwidth);
        }
    }
    for (const ClusterConfig::Switch& group : cluster.switches) {
        std::map<int, std::set<bool>> sides;  // by stage
        for (std::size_t rank = 0; rank < ranks.devices.size(); ++rank)
            sides[stage_of[rank]].insert(std::ranges::count(group.hosts, ranks.devices[rank].host) > 0);
        for (const auto& [stage, of_ranks] : sides)
            if (of_ranks.size() > 1)
                limit(false, group.bandwidth);
    }
}

}  // namespace

int ParallelConfig::first_rank_of(int device) const {
    if (of_stages.empty())
        return device * degrees.holders();
    int rank = 0;
    for (int before = 0; before < device; ++before)
        rank += degrees_of(before).holders();
    return rank;
}

void set_ranks(std::vector<DeviceConfig> devices, ParallelConfig& parallel) {
    ClusterRanks ranks{std::move(devices), {}, {}, true};
    std::map<std::string, int> hosts;
    const DeviceConfig& first = ranks.devices.front();
    for (const DeviceConfig& device : ranks.devices) {
        ranks.usable.push_back(device.memory_of_kind ? usable_memory(device.memory) : device.memory);
        ranks.host.push_back(hosts.try_emplace(device.host, static_cast<int>(hosts.size())).first->second);
        ranks.are_alike = ranks.are_alike && device.make == first.make && device.speed == first.speed &&
                          ranks.usable.back() == ranks.usable.front();
    }
    std::vector<int> on_host(ranks.devices.size(), 0);
    parallel.per_host = 1;
    for (const int host : ranks.host)
        parallel.per_host = std::max(parallel.per_host, ++on_host[static_cast<std::size_t>(host)]);
    parallel.memory = *std::ranges::min_element(ranks.usable);
    parallel.ranks = std::make_shared<const ClusterRanks>(std::move(ranks));
}

bool has_own_network(const ClusterConfig& cluster) {
    return !cluster.links.empty() || !cluster.shared.empty() || !cluster.switches.empty();
}

void divide_among_replicas(Setup& setup, std::int64_t samples) {
    Parallel& parallel = setup.parallel.degrees;
    PipelineConfig& pipeline = setup.pipeline;
    const ClusterRanks& ranks = *setup.parallel.ranks;
    if (setup.parallel.of_stages.empty())
        parallel.data =
            static_cast<int>(ranks.devices.size()) / (parallel.tensor * parallel.pipeline * parallel.context);
    const std::int64_t each = std::int64_t{parallel.data} * pipeline.micro_batch_size;
    pipeline.micro_batches = static_cast<int>(std::max<std::int64_t>(1, samples / each));
    pipeline.mini_batch = pipeline.micro_batches * each;
    limit_links_of_stages(setup);
    DeviceConfig usual;
    usual.speed = ranks.devices.front().speed;
    usual.memory = setup.parallel.memory;
    setup.cluster.devices.assign(static_cast<std::size_t>(parallel.pipeline), usual);
    if (ranks.are_alike && setup.parallel.of_stages.empty()) {
        setup.parallel.makes = {{{ranks.devices.front().make}, parallel}};
        return;
    }
    setup.parallel.makes.clear();
    for (int stage = 0; stage < parallel.pipeline; ++stage)
        gather_holders(stage, ranks, setup);
}

void choose_hosts(Setup& setup, const std::vector<int>& hosts) {
    const ClusterRanks& all = *setup.parallel.ranks;
    bool by_number = true;
    for (std::size_t rank = 0; rank < all.devices.size(); ++rank)
        by_number = by_number && all.devices[rank].host == fmt::format("host {}", all.host[rank]);
    std::vector<DeviceConfig> devices;
    int number = 0;
    for (const int host : hosts) {
        for (std::size_t rank = 0; rank < all.devices.size(); ++rank)
            if (all.host[rank] == host) {
                DeviceConfig& device = devices.emplace_back(all.devices[rank]);
                if (by_number)
                    device.host = fmt::format("host {}", number);
            }
        ++number;
    }
    set_ranks(std::move(devices), setup.parallel);
}

}  // namespace pw
