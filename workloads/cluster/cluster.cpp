#include "workloads/cluster/cluster.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

// What leads out of every host and into it, and what is shared besides.
std::vector<Capacity> capacities_of(const ClusterFacts& facts) {
    std::vector<Capacity> all;
    const bool has_ways_out = facts.between_hosts || !facts.links_of_hosts.empty();
    if (has_ways_out && !facts.host.empty()) {
        std::vector<std::vector<int>> devices_on(*std::max_element(facts.host.begin(), facts.host.end()) + 1);
        for (int device = 0; device < static_cast<int>(facts.host.size()); ++device)
            devices_on[facts.host[device]].push_back(device);
        for (std::size_t host = 0; host < devices_on.size(); ++host) {
            const HostLinks links = facts.links_of_hosts.empty()
                                        ? HostLinks{facts.link, facts.between_hosts, facts.adapters}
                                        : facts.links_of_hosts[host];
            for (const Capacity::Of of : {Capacity::Of::Leaving, Capacity::Of::Entering})
                if (links.between)
                    all.push_back({of, devices_on[host], links.adapters * links.between->bandwidth});
        }
    }
    all.insert(all.end(), facts.shared.begin(), facts.shared.end());
    return all;
}

}  // namespace

const Link& slower_of(const Link& a, const Link& b) {
    return std::pair(b.bandwidth, -b.latency) < std::pair(a.bandwidth, -a.latency) ? b : a;
}

const Link& ClusterFacts::link_of(int from, int to) const {
    if (!own_links.empty())
        if (const auto own = own_links.find({from, to}); own != own_links.end())
            return own->second;
    const bool known = from >= 0 && to >= 0;
    const bool apart = known && host_of(from) != host_of(to);
    if (known && !links_of_hosts.empty()) {
        const HostLinks &a = links_of_hosts[host_of(from)], &b = links_of_hosts[host_of(to)];
        const auto way_of = [&](const HostLinks& links) -> const Link& {
            return apart && links.between ? *links.between : links.inside;
        };
        return slower_of(way_of(a), way_of(b));
    }
    return between_hosts && apart ? *between_hosts : link;
}

int ClusterFacts::adapters_between(int from, int to) const {
    if (host_of(from) == host_of(to) || own_links.contains({from, to}))
        return 1;
    if (links_of_hosts.empty())
        return between_hosts ? adapters : 1;
    return std::min(links_of_hosts[host_of(from)].adapters, links_of_hosts[host_of(to)].adapters);
}

void ClusterFacts::set_kinds(const std::vector<DeviceKind>& of_devices) {
    kinds.clear();
    kind.clear();
    for (const DeviceKind& of_device : of_devices) {
        const auto known = std::find(kinds.begin(), kinds.end(), of_device);
        kind.push_back(static_cast<int>(known - kinds.begin()));
        if (known == kinds.end())
            kinds.push_back(of_device);
    }
}

void ClusterFacts::set_speeds(const std::vector<double>& speeds) {
    std::vector<DeviceKind> of_devices;
    for (const double speed : speeds)
        of_devices.push_back({speed});
    set_kinds(of_devices);
}

Cluster::Cluster(ClusterFacts facts) : ClusterFacts(std::move(facts)), routes(capacities_of(*this)) {}

}  // namespace pw
