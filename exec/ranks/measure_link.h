// The cost of a message between two ranks.
#pragma once

#include "exec/ranks/ranks.h"
#include "workloads/cluster/link.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

struct LinksOfRanks {
    std::optional<Link> inside;   // inside a host, if a host has several ranks
    std::optional<Link> between;  // between hosts, if there are several
};
// All ranks call it together, each with the name of its host. Only rank 0 gets the links. Two ranks send each other
// messages of several sizes while the remaining ranks wait. For `inside` these are the first and the last rank of the
// first host that has several ranks. For `between` these are rank 0 and the first rank of every other host, in turn,
// and the median by size counts. Each link takes about two seconds, a slow link more.
LinksOfRanks measure_links(Ranks& ranks, const std::string& host);

struct SizedTime {
    Bytes bytes;
    Ns time;
};
// Returns the link over which messages take these times. The first time is the latency. It is a line, time = latency +
// (bytes + half_size) / bandwidth, or a table if the line's error for a time is above 10 %.
Link link_of(const std::vector<SizedTime>& times);

// Returns the link of latency `smallest` that fits the times best: time = latency + (bytes + half_size) /
// bandwidth, by least squares of the relative errors.
Link fitted_link(Ns smallest, const std::vector<SizedTime>& times);

}  // namespace pw
