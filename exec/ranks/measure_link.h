// What a message between two ranks costs.
#pragma once

#include "exec/ranks/ranks.h"
#include "workloads/cluster/link.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

struct LinksOfRanks {
    std::optional<Link> inside;   // a host, where one has several ranks
    std::optional<Link> between;  // hosts, where there are several
};
// All ranks call it together, each with the name of its host; rank 0 gets the links, the others nothing. Two ranks send
// each other messages of several sizes while the others wait: `inside` the first rank and the last one of the first
// host that has several, `between` rank 0 and the first rank of every other host in turn, of which the median by size
// counts. It takes about two seconds for each, more where a link is slow.
LinksOfRanks measure_links(Ranks& ranks, const std::string& host);

struct SizedTime {
    Bytes bytes;
    Ns time;
};
// Returns the link over which messages take these times; the first is the latency. It is a line, time = latency +
// (bytes + half_size) / bandwidth, or, where the line misses a time by more than 10 %, a table.
Link link_of(const std::vector<SizedTime>& times);

// Returns the link of latency `smallest` that fits times of messages by their sizes best: time = latency + (size +
// half_size) / bandwidth, by least squares of the relative errors.
Link fitted_link(Ns smallest, const std::vector<SizedTime>& times);

}  // namespace pw
