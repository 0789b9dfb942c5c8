// The devices of a job, the hosts that they are on, and what connects them. A cluster does not change once it is made:
// all plans of a search share one.
#pragma once

#include "workloads/cluster/link.h"
#include "workloads/cluster/routes.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace pw {

// What is the same for all devices of one make.
struct DeviceKind {
    double speed = 1;  // relative to the device that times are for
    bool operator==(const DeviceKind&) const = default;
};

struct ClusterFacts {
    std::vector<DeviceKind> kinds;
    std::vector<int> kind;  // per device; when empty, all devices are as fast as the times say
    std::vector<int> host;  // per device; when empty, all devices are on one
    Link link;              // between two devices
    // Between devices of different hosts, where that is another link: of one adapter, as a message takes it. The
    // messages that leave a host share the bandwidth of its adapters, and those that enter it do.
    std::optional<Link> between_hosts;
    int adapters = 1;                               // of every host
    std::map<std::pair<int, int>, Link> own_links;  // instead of these, from a device to another that has its own
    std::vector<Capacity> shared;                   // in addition to what leads out of hosts and into them
    Link sums;                                      // instead of `link`, for sums of gradients
    bool dispatch_by_host = false;  // one dispatcher per host issues the calls of all its devices, one at a time

    double speed_of(int device) const {
        return kind.empty() ? 1 : kinds[static_cast<std::size_t>(kind[static_cast<std::size_t>(device)])].speed;
    }
    int host_of(int device) const { return host.empty() ? 0 : host[static_cast<std::size_t>(device)]; }
    const Link& link_of(int from, int to) const;  // devices
    // Gives every device a speed.
    void set_speeds(const std::vector<double>& speeds);
};

struct Cluster : ClusterFacts {
    explicit Cluster(ClusterFacts facts);
    Routes routes;
};

}  // namespace pw
