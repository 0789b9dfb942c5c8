// The cluster of a config: devices, hosts, links, and what messages share.
#include "job/build.h"
#include "job/cost_source.h"
#include "workloads/bounded.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pw {

void add_network(ClusterFacts& facts, const ClusterConfig& cluster, const std::map<std::string, int>& hosts) {
    for (const ClusterConfig::PairLink& pair : cluster.links)
        facts.own_links[{pair.from, pair.to}] = pair.link;
    for (const ClusterConfig::Shared& shared : cluster.shared)
        facts.shared.push_back({Capacity::Of::Touching, shared.devices, shared.bandwidth});
    for (const ClusterConfig::Switch& group : cluster.switches) {
        std::vector<char> below(hosts.size(), 0);
        for (const std::string& name : group.hosts)
            if (const auto host = hosts.find(name); host != hosts.end())
                below[static_cast<std::size_t>(host->second)] = 1;
        std::vector<int> devices;
        for (int device = 0; device < static_cast<int>(facts.host.size()); ++device)
            if (below[static_cast<std::size_t>(facts.host[device])])
                devices.push_back(device);
        for (const Capacity::Of of : {Capacity::Of::Leaving, Capacity::Of::Entering})
            facts.shared.push_back({of, devices, group.bandwidth});
    }
}

Link slower_link(Link link, double factor) {
    link.latency = bounded(std::round(static_cast<double>(link.latency) * factor));
    link.bandwidth /= factor;
    for (SizedBandwidth& row : link.by_size)
        row.bandwidth /= factor;
    return link;
}

void calibrate_network(ClusterFacts& facts, const Calibration& calibration) {
    const auto factor = [&](bool is_inside) { return is_inside ? calibration.inside : calibration.between; };
    for (auto& [pair, link] : facts.own_links)
        link = slower_link(std::move(link), factor(facts.host_of(pair.first) == facts.host_of(pair.second)));
    for (Capacity& shared : facts.shared) {
        const std::vector<int>& devices = shared.devices;
        shared.bandwidth /= factor(shared.of == Capacity::Of::Touching && std::ranges::all_of(devices, [&](int device) {
                                       return facts.host_of(device) == facts.host_of(devices.front());
                                   }));
    }
}

namespace {

// Hosts of several makes have the links of their first devices.
void add_links_of_hosts(ClusterFacts& facts, const ClusterConfig& cluster, int hosts) {
    if (cluster.makes.empty() || hosts < 2)
        return;
    std::vector<const DeviceMake*> make_of(static_cast<std::size_t>(hosts), nullptr);
    for (std::size_t device = 0; device < cluster.devices.size(); ++device)
        if (const DeviceMake*& make = make_of[static_cast<std::size_t>(facts.host[device])]; make == nullptr)
            make = &cluster.makes[static_cast<std::size_t>(cluster.devices[device].make)];
    for (const DeviceMake* make : make_of)
        facts.links_of_hosts.push_back({make->link, make->between_hosts, make->adapters});
}

}  // namespace

std::map<std::string, int> place_on_hosts(ClusterFacts& facts, const ClusterConfig& cluster) {
    std::map<std::string, int> hosts;
    for (const DeviceConfig& device : cluster.devices)
        facts.host.push_back(hosts.try_emplace(device.host, static_cast<int>(hosts.size())).first->second);
    facts.dispatch_by_host = cluster.dispatcher == ClusterConfig::Dispatcher::PerHost;
    return hosts;
}

std::shared_ptr<const Cluster> cluster_of(const Setup& setup, const Profile& profile) {
    if (const CostSourceRow& source = cost_source_of(setup); source.cluster != nullptr) {
        ClusterFacts facts = source.cluster(setup);
        facts.to_host = setup.cluster.host_link.value_or(profile.host_link);
        return std::make_shared<const Cluster>(std::move(facts));
    }
    const ClusterConfig& cluster = setup.cluster;
    ClusterFacts facts;
    const std::map<std::string, int> hosts = place_on_hosts(facts, cluster);
    std::vector<DeviceKind> kinds;
    for (const DeviceConfig& device : cluster.devices)
        kinds.push_back({device.speed, device.make});
    facts.set_kinds(kinds);
    const bool profiled = is_measured(profile) && !cluster.link_given;
    facts.link = profiled ? profile.link : cluster.link;
    facts.sums = profiled ? profile.sums : cluster.link;
    facts.between_hosts = profiled ? profile.between_hosts : cluster.between_hosts;
    facts.to_host = cluster.host_link.value_or(profile.host_link);
    facts.adapters = cluster.adapters;
    add_links_of_hosts(facts, cluster, static_cast<int>(hosts.size()));
    add_network(facts, cluster, hosts);
    return std::make_shared<const Cluster>(std::move(facts));
}

}  // namespace pw
