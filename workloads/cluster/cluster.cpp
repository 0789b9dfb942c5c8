#include "workloads/cluster/cluster.h"

#include <algorithm>

namespace pw {

namespace {

// What leads out of every host and into it, and what is shared besides.
std::vector<Capacity> capacities_of(const ClusterFacts& facts) {
    std::vector<Capacity> all;
    if (facts.between_hosts && !facts.host.empty()) {
        std::vector<std::vector<int>> devices_on(*std::max_element(facts.host.begin(), facts.host.end()) + 1);
        for (int device = 0; device < static_cast<int>(facts.host.size()); ++device)
            devices_on[facts.host[device]].push_back(device);
        for (const std::vector<int>& devices : devices_on)
            for (const Capacity::Of of : {Capacity::Of::Leaving, Capacity::Of::Entering})
                all.push_back({of, devices, facts.adapters * facts.between_hosts->bandwidth});
    }
    all.insert(all.end(), facts.shared.begin(), facts.shared.end());
    return all;
}

}  // namespace

const Link& ClusterFacts::link_of(int from, int to) const {
    if (!own_links.empty())
        if (const auto own = own_links.find({from, to}); own != own_links.end())
            return own->second;
    const bool apart = from >= 0 && to >= 0 && host_of(from) != host_of(to);
    return between_hosts && apart ? *between_hosts : link;
}

void ClusterFacts::set_speeds(const std::vector<double>& speeds) {
    kinds.clear();
    kind.clear();
    for (const double speed : speeds) {
        const auto known = std::find(kinds.begin(), kinds.end(), DeviceKind{speed});
        kind.push_back(static_cast<int>(known - kinds.begin()));
        if (known == kinds.end())
            kinds.push_back({speed});
    }
}

Cluster::Cluster(ClusterFacts facts) : ClusterFacts(std::move(facts)), routes(capacities_of(*this)) {}

}  // namespace pw
