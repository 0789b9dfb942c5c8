// Times of collectives among the ranks of a group, from measured tables (workloads/cluster/collectives.yaml) inside an
// NVLink domain, and from the bandwidth of adapters between hosts.
#pragma once

#include "workloads/cluster/link.h"

#include <cstdint>
#include <optional>
#include <string>

namespace pw {

enum class Collective : std::uint8_t { AllReduce, AllGather, ReduceScatter, AllToAll };

// What connects equal devices.
struct Fabric {
    // The name of the link inside a domain, or of the link that `inside` resembles. Collectives may have been measured
    // on the named link. May be empty. If `inside` has another bandwidth or latency, measured times are scaled.
    std::string inside_name;
    Link inside;                  // between two devices of a domain
    int domain = 1;               // devices that `inside` connects, a host or several
    int per_host = 1;             // devices of a host
    std::optional<Link> between;  // of one adapter, absent: there is a single domain
    int adapters = 1;             // of every host

    // Returns the bandwidth that leads out of a domain, in bytes per second.
    double way_out() const;
};

// Ranks that are `stride` devices apart.
struct RankGroup {
    int ranks = 1;
    int stride = 1;

    // Returns the number of the group's ranks in a domain.
    int in_domain(const Fabric& fabric) const;
};

// Returns the seconds of a collective if all groups of this kind communicate at the same time. `bytes` is the size of
// the whole tensor on each rank: the sum of an all-reduce, the result of an all-gather, the input of a reduce-scatter,
// what a rank has before an all-to-all.
double collective_seconds(Collective kind, double bytes, const RankGroup& group, const Fabric& fabric);

// What a rank sends to other ranks of its domain, and out of its domain.
struct SentBytes {
    double inside = 0, outside = 0;
};

// Returns the seconds in which all ranks send these bytes to the ranks of their groups at the same time.
double exchange_seconds(const SentBytes& sent, const Fabric& fabric);

// Returns the seconds of a message to the device that is `stride` devices away, if all devices send a message.
double message_seconds(double bytes, int stride, const Fabric& fabric);

}  // namespace pw
