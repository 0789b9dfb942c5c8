#include "workloads/costs/sum_times.h"

#include "workloads/bounded.h"
#include "workloads/rounding.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace pw {

namespace {

using Devices = std::vector<int>;

// By host, in the order of their first devices.
std::vector<Devices> by_host(const Devices& devices, const std::vector<int>& host) {
    std::vector<Devices> all;
    std::map<int, std::size_t> position;
    for (const int device : devices) {
        const int on = host.empty() ? 0 : host[static_cast<std::size_t>(device)];
        const auto [found, added] = position.try_emplace(on, all.size());
        if (added)
            all.emplace_back();
        all[found->second].push_back(device);
    }
    return all;
}

void add_ring(const Devices& devices, std::vector<SumRound::Pair>& messages, int adapters = 1) {
    for (std::size_t place = 0; place < devices.size(); ++place)
        messages.push_back({devices[place], devices[(place + 1) % devices.size()], adapters});
}

SumRound ring(const Devices& devices, SumPart part, int adapters) {
    const auto count = static_cast<int>(devices.size());
    SumRound round{{}, (part == SumPart::All ? 2 : 1) * (count - 1), count};
    add_ring(devices, round.messages, adapters);
    return round;
}

// The parent of place k is (k - 1) / 2.
std::vector<SumRound> tree(const Devices& devices) {
    std::vector<SumRound> up;  // from the root on
    for (std::size_t first = 1; first < devices.size(); first = 2 * first + 1) {
        SumRound& level = up.emplace_back();
        for (std::size_t place = first; place < std::min(2 * first + 1, devices.size()); ++place)
            level.messages.push_back({devices[place], devices[(place - 1) / 2]});
    }
    std::vector<SumRound> rounds(up.rbegin(), up.rend());
    for (SumRound& level : up) {
        for (SumRound::Pair& pair : level.messages)
            std::swap(pair.from, pair.to);
        rounds.push_back(std::move(level));
    }
    return rounds;
}

// Up a tree of hosts and down again: as many steps as levels, in which all bytes leave a host twice.
void pass_trees(SumRound& between, int hosts, int on_each) {
    int levels = 0;
    while ((1 << levels) < hosts)
        ++levels;
    between.steps = 2 * levels;
    between.parts = std::max(1, levels) * on_each;
}

std::vector<SumRound> two_level(const std::vector<Devices>& hosts, SumPart part, bool has_trees) {
    const auto on_each = static_cast<int>(hosts.front().size()), count = static_cast<int>(hosts.size());
    SumRound inside{{}, on_each - 1, on_each},
        between{{}, (part == SumPart::All ? 2 : 1) * (count - 1), count * on_each};
    if (has_trees)
        pass_trees(between, count, on_each);
    for (const Devices& devices : hosts)
        add_ring(devices, inside.messages);
    for (std::size_t place = 0; place < hosts.front().size(); ++place) {
        Devices across;
        for (const Devices& devices : hosts)
            across.push_back(devices[place]);
        add_ring(across, between.messages);
    }
    std::vector<SumRound> rounds = {inside, between};
    if (part == SumPart::All)
        rounds.push_back(inside);
    std::erase_if(rounds, [](const SumRound& round) { return round.steps == 0; });
    return rounds;
}

// Returns the average rate of each message until it has left, if only the messages of its step share its route.
std::vector<double> bandwidths_of(const SumRound& round, double bytes, const Cluster& cluster) {
    std::vector<Demand> demands;
    for (const SumRound::Pair& pair : round.messages)
        demands.push_back(demand_of_sum(pair, bytes, cluster));
    std::vector<double> bandwidths, left(demands.size(), bytes);
    std::vector<char> slowed(demands.size(), 0);
    for (const Demand& demand : demands)
        bandwidths.push_back(demand.most);
    FairShares shares(cluster.routes.capacities());
    std::vector<Demand*> open;
    for (Demand& demand : demands)
        if (!demand.takes.empty())
            open.push_back(&demand);
    for (double since = 0; !open.empty();) {
        shares.share(open);
        const auto left_of = [&](const Demand* demand) -> double& { return left[demand - demands.data()]; };
        for (const Demand* demand : open)
            slowed[demand - demands.data()] |= demand->rate < demand->most ? 1 : 0;
        double soonest = left_of(open.front()) / open.front()->rate;
        for (const Demand* demand : open)
            soonest = std::min(soonest, left_of(demand) / demand->rate);
        std::erase_if(open, [&](const Demand* demand) {
            if (left_of(demand) > demand->rate * soonest * (1 + kRounding)) {
                left_of(demand) -= demand->rate * soonest;
                return false;
            }
            if (slowed[demand - demands.data()])
                bandwidths[demand - demands.data()] = bytes / (since + left_of(demand) / demand->rate);
            return true;
        });
        since += soonest;
    }
    return bandwidths;
}

double time_of(const SumRound& round, Bytes bytes, const Cluster& cluster) {
    const auto all = static_cast<double>(bytes);
    const std::vector<double> bandwidths = bandwidths_of(round, all / round.parts, cluster);
    double longest = 0;
    for (std::size_t message = 0; message < round.messages.size(); ++message) {
        const Ns latency = sum_link_of(round.messages[message], cluster).latency;
        const double moving = bytes == 0 ? 0 : all * round.steps / round.parts / bandwidths[message] * 1e9;
        longest = std::max(longest, static_cast<double>(bounded_product(round.steps, latency)) + moving);
    }
    return longest;
}

}  // namespace

const Link& sum_link_of(const SumRound::Pair& pair, const Cluster& cluster) {
    const Link& link = cluster.link_of(pair.from, pair.to);
    return &link == &cluster.link ? cluster.sums : link;
}

int adapters_of(const SumRound::Pair& pair, const Cluster& cluster) {
    return std::min(pair.adapters, cluster.adapters_between(pair.from, pair.to));
}

Demand demand_of_sum(const SumRound::Pair& pair, double bytes, const Cluster& cluster) {
    const int adapters = adapters_of(pair, cluster);
    Demand demand{.takes = bytes > 0 ? cluster.routes.takes(pair.from, pair.to) : std::vector<int>{},
                  .most = adapters * bandwidth_for(bytes / adapters, sum_link_of(pair, cluster))};
    for (const int capacity : demand.takes)
        demand.most = std::min(demand.most, cluster.routes.capacities()[capacity]);
    return demand;
}

std::vector<SumRound> rounds_of(SumAlgorithm algorithm, std::vector<int> devices, const std::vector<int>& host,
                                SumPart part) {
    if (devices.size() < 2)
        return {};
    const std::vector<Devices> hosts = by_host(devices, host);
    devices.clear();
    for (const Devices& on_host : hosts)
        devices.insert(devices.end(), on_host.begin(), on_host.end());
    const bool even = std::all_of(hosts.begin(), hosts.end(),
                                  [&](const Devices& on_host) { return on_host.size() == hosts.front().size(); });
    switch (algorithm) {
        case SumAlgorithm::Tree:
            return tree(devices);
        case SumAlgorithm::TwoLevel:
        case SumAlgorithm::TreeOfHosts:
            if (even)
                return two_level(hosts, part, algorithm == SumAlgorithm::TreeOfHosts);
            break;
        case SumAlgorithm::Ring:
            break;
    }
    std::size_t fewest = devices.size();
    for (const Devices& on_host : hosts)
        fewest = std::min(fewest, on_host.size());
    return {ring(devices, part, hosts.size() > 1 ? static_cast<int>(fewest) : 1)};
}

std::vector<SumRound> in_buckets(std::vector<SumRound> rounds, int buckets) {
    for (SumRound& round : rounds) {
        round.steps *= buckets;
        round.parts *= buckets;
    }
    return rounds;
}

StageSum timed_sum(std::vector<SumRound> rounds, Bytes bytes, const Cluster& cluster) {
    StageSum sum{bytes, std::move(rounds), 0};
    if (sum.rounds.empty())
        return sum;
    double alone = 0;  // rounded once, whatever the number of rounds
    for (const SumRound& round : sum.rounds)
        alone += time_of(round, bytes, cluster);
    sum.alone = bounded(alone);
    return sum;
}

StageSum sum_among(const std::vector<int>& devices, Bytes bytes, const Cluster& cluster, SumAlgorithm algorithm) {
    return timed_sum(rounds_of(algorithm, devices, cluster.host), bytes, cluster);
}

}  // namespace pw
