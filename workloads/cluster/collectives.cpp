#include "workloads/cluster/collectives.h"

#include "workloads/cluster/collectives_text.h"
#include "workloads/cluster/named_links.h"
#include "workloads/text/embedded.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace pw {

namespace {

constexpr double kMiB = 1024 * 1024;
// These hold for links without a table: SimuMax, as in collectives.yaml.
constexpr double kFixed = 22e-6, kShare = 0.742, kAllToAllShare = 0.597;
// The share of an adapter's bandwidth that messages reach: 24 of 25 and 48 of 50 GB/s, 380 of 400 GB/s in hosts with
// eight (a slide of NVIDIA's GTC talk S62129, in stas00/ml-engineering@744d01e, all-reduce-multi-node-bandwidth.png).
constexpr double kAdapterShare = 0.96;

struct AllReduceTable {
    std::string link;
    int ranks = 0;
    double gather_bandwidth = 0;                  // of all-gathers, 0: half of an all-reduce
    std::vector<std::pair<double, double>> rows;  // bytes, seconds
};

std::vector<AllReduceTable> read_all_reduces() {
    const Yaml root = parse_embedded("the tables of collectives of this build", kCollectivesText);
    std::vector<AllReduceTable> tables;
    for (const Yaml& at : root["tables"].items()) {
        AllReduceTable& table = tables.emplace_back();
        table.link = at["link"].text();
        table.ranks = static_cast<int>(at["ranks"].integer(2, 2, 1024));
        if (at["all_gather_busbw"].present())
            table.gather_bandwidth = at["all_gather_busbw"].bandwidth(1);
        for (const Yaml& row : at["rows"].items()) {
            const std::vector<Yaml> values = row.items();
            table.rows.emplace_back(values.at(0).number(1, 0, 1e6) * kMiB, values.at(1).number(1, 0, 1e9) * 1e-6);
        }
    }
    root.source().throw_if_mistaken();
    return tables;
}

// Returns the table of the link with the nearest number of ranks, or null.
const AllReduceTable* nearest_table(const std::string& link, int ranks) {
    static const std::vector<AllReduceTable> tables = read_all_reduces();
    const AllReduceTable* nearest = nullptr;
    const auto distance = [&](const AllReduceTable& table) { return std::abs(std::log(table.ranks / double(ranks))); };
    for (const AllReduceTable& table : tables)
        if (table.link == link && (nearest == nullptr || distance(table) < distance(*nearest)))
            nearest = &table;
    return nearest;
}

// Returns the time on the line through the neighbours by logarithms. Beyond the largest size, returns the time at its
// bandwidth.
double seconds_at(const std::vector<std::pair<double, double>>& rows, double bytes) {
    const auto high = std::lower_bound(rows.begin(), rows.end(), std::pair(bytes, 0.0));
    if (high == rows.begin())
        return high->second;
    if (high == rows.end())
        return rows.back().second * bytes / rows.back().first;
    const auto low = std::prev(high);
    const double part = std::log(bytes / low->first) / std::log(high->first / low->first);
    return low->second * std::pow(high->second / low->second, part);
}

double moved_share(int ranks) { return static_cast<double>(ranks - 1) / ranks; }

double way_out_of_device(const Fabric& fabric) { return fabric.way_out() / fabric.domain; }

double inside_seconds(Collective kind, double bytes, int ranks, const Fabric& fabric) {
    const double moved = bytes * moved_share(ranks);
    if (kind == Collective::AllToAll)
        return exchange_seconds({.inside = moved}, fabric);
    const AllReduceTable* table = nearest_table(fabric.inside_name, ranks);
    const bool reduces = kind == Collective::AllReduce;
    if (table == nullptr)
        return kFixed + (reduces ? 2 : 1) * moved / (kShare * fabric.inside.bandwidth);
    // On a link with twice the bandwidth, twice the bytes take the measured time.
    const Link& measured = find_named_link(fabric.inside_name)->link;
    const double faster = fabric.inside.bandwidth / measured.bandwidth;
    const double later = static_cast<double>(fabric.inside.latency - measured.latency) * 1e-9;
    const double all_reduce = seconds_at(table->rows, moved / moved_share(table->ranks) / faster);
    if (reduces)
        return all_reduce + 2 * later;
    const double slowest = table->gather_bandwidth > 0 ? moved / (table->gather_bandwidth * faster) : 0;
    return std::max(all_reduce / 2, slowest) + later;
}

double across_seconds(Collective kind, double bytes, const RankGroup& group, int in_domain, const Fabric& fabric) {
    const int domains = (group.ranks + in_domain - 1) / in_domain;
    const double hop = static_cast<double>(fabric.between->latency) * 1e-9;
    if (kind == Collective::AllToAll)
        return exchange_seconds({.inside = bytes * (in_domain - 1) / group.ranks,
                                 .outside = bytes * (group.ranks - in_domain) / group.ranks},
                                fabric);
    double bandwidth = way_out_of_device(fabric) * in_domain;
    if (in_domain > 1)
        bandwidth = std::min(bandwidth, kShare * fabric.inside.bandwidth);
    // A tree of domains with a chain in each, and a ring through all ranks (NVIDIA/nccl, src/graph/tuning.cc).
    const bool reduces = kind == Collective::AllReduce;
    const double hops = reduces ? 2 * std::ceil(std::log2(domains)) : domains - 1;
    const double steps = reduces ? 2 * (in_domain - 1) : group.ranks - domains;  // between neighbours of a domain
    const double step = static_cast<double>(fabric.inside.latency) * 1e-9;
    return kFixed + hops * hop + steps * step + (reduces ? 2 : 1) * bytes * moved_share(group.ranks) / bandwidth;
}

}  // namespace

double Fabric::way_out() const {
    const double hosts = static_cast<double>(domain) / per_host;
    return between ? kAdapterShare * between->bandwidth * adapters * hosts : 0;
}

int RankGroup::in_domain(const Fabric& fabric) const { return std::clamp(fabric.domain / stride, 1, ranks); }

double collective_seconds(Collective kind, double bytes, const RankGroup& group, const Fabric& fabric) {
    if (group.ranks <= 1 || bytes <= 0)
        return 0;
    const int in_domain = fabric.between ? group.in_domain(fabric) : group.ranks;
    return in_domain >= group.ranks ? inside_seconds(kind, bytes, group.ranks, fabric)
                                    : across_seconds(kind, bytes, group, in_domain, fabric);
}

double exchange_seconds(const SentBytes& sent, const Fabric& fabric) {
    const double inside = sent.inside / (kAllToAllShare * fabric.inside.bandwidth);
    if (sent.outside == 0)
        return kFixed + inside;
    const double hop = static_cast<double>(fabric.between->latency) * 1e-9;
    return kFixed + hop + std::max(sent.outside / way_out_of_device(fabric), inside);
}

double message_seconds(double bytes, int stride, const Fabric& fabric) {
    if (!fabric.between || stride < fabric.domain)
        return static_cast<double>(fabric.inside.latency) * 1e-9 + bytes / fabric.inside.bandwidth;
    return static_cast<double>(fabric.between->latency) * 1e-9 + bytes / (fabric.way_out() / fabric.domain);
}

}  // namespace pw
