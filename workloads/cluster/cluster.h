// The devices of a job, the hosts that they are on, and what connects them. A cluster does not change once it is made:
// all plans of a search share it.
#pragma once

#include "workloads/cluster/link.h"
#include "workloads/cluster/routes.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace pw {

// What is the same for all devices of a make.
struct DeviceKind {
    double speed = 1;  // relative to the device that times are for
    int times = 0;     // whose times: a number in Costs::of_makes, if there are several makes
    bool operator==(const DeviceKind&) const = default;
};

// The links of a host.
struct HostLinks {
    Link inside;                       // between two of its devices
    std::optional<Link> between = {};  // of one adapter, to other hosts, absent: `inside`
    int adapters = 1;
    bool operator==(const HostLinks&) const = default;
};

// Returns the link with less bandwidth, or with more latency if both have equal bandwidths.
const Link& slower_of(const Link& a, const Link& b);

struct ClusterFacts {
    std::vector<DeviceKind> kinds;
    std::vector<int> kind;  // per device, when empty: all devices are as fast as the times say
    std::vector<int> host;  // per device, when empty: all devices are on the same host
    Link link;              // between two devices
    // The link between devices of different hosts, where it differs from `link`: of one adapter, as a message takes it.
    // The messages that leave a host share the bandwidth of its adapters, and so do the messages that enter the host.
    std::optional<Link> between_hosts;
    int adapters = 1;                               // of every host
    std::vector<HostLinks> links_of_hosts;          // by host, instead of these three (empty: all hosts have these)
    std::map<std::pair<int, int>, Link> own_links;  // instead of these, from a device to another with its own link
    std::vector<Capacity> shared;                   // in addition to what leads out of hosts and into them
    Link sums;                                      // instead of `link`, for sums of gradients
    Link to_host;                                   // of a device to the memory of its host, in each direction
    bool dispatch_by_host = false;  // a dispatcher per host issues the calls of all its devices, one at a time

    double speed_of(int device) const {
        return kind.empty() ? 1 : kinds[static_cast<std::size_t>(kind[static_cast<std::size_t>(device)])].speed;
    }
    int times_of(int device) const {
        return kind.empty() ? 0 : kinds[static_cast<std::size_t>(kind[static_cast<std::size_t>(device)])].times;
    }
    int host_of(int device) const { return host.empty() ? 0 : host[static_cast<std::size_t>(device)]; }
    // Returns the link from a device to another. Two hosts with links of their own use the slower link.
    const Link& link_of(int from, int to) const;
    // Returns the adapters that a message between the hosts of two devices may use.
    int adapters_between(int from, int to) const;
    // Gives every device its kind, or kinds that differ in speed only.
    void set_kinds(const std::vector<DeviceKind>& of_devices);
    void set_speeds(const std::vector<double>& speeds);
};

struct Cluster : ClusterFacts {
    explicit Cluster(ClusterFacts facts);
    Routes routes;
};

}  // namespace pw
