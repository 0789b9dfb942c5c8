#include "workloads/cluster/link_yaml.h"

#include "workloads/cluster/named_links.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace pw {

namespace {

std::vector<SizedBandwidth> read_size_rows(const Yaml& at) {
    std::vector<SizedBandwidth> table;
    double longest = 0;
    for (const Yaml& item : at.items()) {
        item.allow({"bytes", "bandwidth"});
        for (const char* key : {"bytes", "bandwidth"})
            if (!item[key].present())
                item.complain(fmt::format("'{}' has no {}", item.path(), key), "write {bytes: .., bandwidth: ..}");
        const SizedBandwidth entry{item["bytes"].bytes(1), item["bandwidth"].bandwidth(1)};
        const double time = static_cast<double>(entry.bytes) / entry.bandwidth;
        if (entry.bytes < 1 || (!table.empty() && entry.bytes <= table.back().bytes))
            item.complain(fmt::format("'{}' is for {}, and sizes ascend", item.path(), print_bytes(entry.bytes)),
                          "order the entries by their sizes, each above 0 B and once");
        else if (time < longest)
            item.complain(
                fmt::format("by '{}' {} take less time than fewer bytes do", item.path(), print_bytes(entry.bytes)),
                "correct the bandwidth, or leave the entry out");
        longest = std::max(longest, time);
        table.push_back(entry);
    }
    if (at.is_list() && table.empty())
        at.complain(fmt::format("'{}' is empty", at.path()), "write {bytes: .., bandwidth: ..} for each measured size");
    return table;
}

}  // namespace

void read_sizes(const Yaml& at, Link& link) {
    if (at["half_size"].present() && !at["bandwidth"].present())
        at["half_size"].complain(fmt::format("'{}' has a half_size and no bandwidth to halve", at.path()),
                                 "write the bandwidth of large messages");
    link.half_size = at["half_size"].bytes(0);
    if (link.half_size > kLargestHalfSize)
        at["half_size"].complain(fmt::format("{} are too many", print_bytes(link.half_size)),
                                 fmt::format("write up to {}", print_bytes(kLargestHalfSize)));
    const Yaml table = at["bandwidths"];
    if (!table.present())
        return;
    for (const char* key : {"bandwidth", "half_size"})
        if (at[key].present())
            at[key].complain(fmt::format("'{}' has bandwidths by size, and a {}", at.path(), key), "write one of them");
    link.by_size = read_size_rows(table);
    if (link.by_size.empty())
        return;
    link.bandwidth = 0;
    for (const SizedBandwidth& entry : link.by_size)
        link.bandwidth = std::max(link.bandwidth, entry.bandwidth);
}

Link read_named_link(const Yaml& at) {
    if (const NamedLink* named = find_named_link(at.text()))
        return named->link;
    at.complain(fmt::format("'{}' is '{}', which is not a link", at.path(), at.text()),
                fmt::format("write {{bandwidth: .., latency: ..}}, or the name of one: {}", names_of_links()));
    return {};
}

std::string print_link(const Link& link) {
    std::string text;
    if (link.by_size.empty()) {
        text = fmt::format("bandwidth: {}, latency: {}", exact_bandwidth(link.bandwidth), exact_time(link.latency));
    } else {
        std::vector<std::string> entries;
        for (const SizedBandwidth& entry : link.by_size)
            entries.push_back(fmt::format("{{bytes: {}, bandwidth: {}}}", exact_bytes(entry.bytes),
                                          exact_bandwidth(entry.bandwidth)));
        text = fmt::format("bandwidths: [{}], latency: {}", fmt::join(entries, ", "), exact_time(link.latency));
    }
    return link.half_size > 0 ? fmt::format("{}, half_size: {}", text, exact_bytes(link.half_size)) : text;
}

}  // namespace pw
