#include "exec/ranks/measure_link.h"

#include "workloads/clock.h"
#include "workloads/median.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

namespace pw {

namespace {

constexpr int kTagOfTurns = kFirstTag;  // no plan runs at the same time
constexpr Bytes kKiB = 1024;
constexpr Bytes kSizes[] = {1,         kKiB,       4 * kKiB,   16 * kKiB,   32 * kKiB,
                            64 * kKiB, 128 * kKiB, 256 * kKiB, 1024 * kKiB, 4096 * kKiB};
constexpr Ns kBudget = 2'000'000'000;               // for the pairs of a class, as far as the least rounds allow
constexpr int kLeastRounds = 3, kMostRounds = 100;  // round trips of each size
constexpr double kAllowedError = 0.1;               // of a line, relative to a time (above it a table is used)
constexpr Bytes kTableEnd = Bytes{1} << 30;         // the last size of the table

using Bytewise = std::span<std::byte>;

template <class Value>
Bytewise bytes_in(Value& value) {
    return std::as_writable_bytes(std::span(&value, 1));
}

void pass(Ranks& ranks, int other, Bytewise bytes, bool sends) {
    const Ranks::Ticket ticket =
        sends ? ranks.send(other, kTagOfTurns, bytes, false) : ranks.receive(other, kTagOfTurns, bytes);
    wait_for(ranks, std::span(&ticket, 1));
}

// The header that the measuring rank sends before the rounds of a size.
struct Rounds {
    int count = 0;
    bool is_last = false;  // size
};

Ns round_trip(Ranks& ranks, int other, Message& message) {
    const Ns start = clock_now();
    pass(ranks, other, message, true);
    pass(ranks, other, message, false);
    return clock_now() - start;
}

// Half of the median round trip, by size. Sizes are left out if a few rounds would take longer than the budget.
std::vector<SizedTime> measure_sizes(Ranks& ranks, int other, Ns budget) {
    std::vector<SizedTime> times;
    for (const Bytes bytes : kSizes) {
        Message message(static_cast<std::size_t>(bytes));
        (void)round_trip(ranks, other, message);  // the first one may connect the two ranks
        const Ns trip = std::max<Ns>(1, round_trip(ranks, other, message));
        const Ns most = budget / std::ssize(kSizes) / trip;
        Rounds rounds{static_cast<int>(std::clamp<Ns>(most, kLeastRounds, kMostRounds)),
                      bytes == *std::rbegin(kSizes) || kLeastRounds * trip > kBudget};
        pass(ranks, other, bytes_in(rounds), true);
        std::vector<Ns> times_one_way;
        for (int round = 0; round < rounds.count; ++round)
            times_one_way.push_back(round_trip(ranks, other, message) / 2);
        times.push_back({bytes, upper_median(std::move(times_one_way))});
        if (rounds.is_last)
            break;
    }
    return times;
}

void echo(Ranks& ranks, int other) {
    Rounds rounds;
    for (std::size_t size = 0; !rounds.is_last; ++size) {
        Message message(static_cast<std::size_t>(kSizes[size]));
        const auto send_back = [&](bool later) {
            if (later)
                wait_idly(ranks, ranks.receive(other, kTagOfTurns, message));
            else
                pass(ranks, other, message, false);
            pass(ranks, other, message, true);
        };
        send_back(size == 0);
        send_back(false);
        pass(ranks, other, bytes_in(rounds), false);
        for (int round = 0; round < rounds.count; ++round)
            send_back(false);
    }
}

struct Pair {
    int measures, echoes;
};

// The times that the pair has measured, on rank 0, and nothing on other ranks.
std::vector<SizedTime> times_between(Ranks& ranks, const Pair& pair, Ns budget) {
    const int own = ranks.rank();
    if (own == pair.echoes)
        echo(ranks, pair.measures);
    if (pair.measures == 0)
        return own == 0 ? measure_sizes(ranks, pair.echoes, budget) : std::vector<SizedTime>{};
    std::byte turn{};
    std::size_t sizes = 0;
    std::vector<SizedTime> times;
    if (own == pair.measures) {
        wait_idly(ranks, ranks.receive(0, kTagOfTurns, bytes_in(turn)));
        times = measure_sizes(ranks, pair.echoes, budget);
        sizes = times.size();
        pass(ranks, 0, bytes_in(sizes), true);
        pass(ranks, 0, std::as_writable_bytes(std::span(times)), true);
    }
    if (own != 0)
        return {};
    pass(ranks, pair.measures, bytes_in(turn), true);
    wait_idly(ranks, ranks.receive(pair.measures, kTagOfTurns, bytes_in(sizes)));
    times.resize(sizes);
    pass(ranks, pair.measures, std::as_writable_bytes(std::span(times)), false);
    return times;
}

// The error of a link for a measured time, relative to it.
double error_of(const Link& link, const SizedTime& measured) {
    const Ns time = link.latency + occupation_of(measured.bytes, link);
    return static_cast<double>(std::abs(time - measured.time)) / static_cast<double>(measured.time);
}

// Beyond the last size the time grows as between the last two sizes. Smaller messages are not faster than this
// growth if the difference is within kAllowedError: the largest bandwidth of the table is the bandwidth that the
// messages of a host share.
Link table_of(std::vector<SizedTime> times) {
    const Ns latency = times.front().time;
    const auto occupied = [&](const SizedTime& one) { return static_cast<double>(one.time - latency); };
    times.erase(times.begin());
    const SizedTime last = times.back(), before = times[times.size() - std::min<std::size_t>(times.size(), 2)];
    if (const double ns_per_byte = (occupied(last) - occupied(before)) / static_cast<double>(last.bytes - before.bytes);
        ns_per_byte > 0) {
        for (SizedTime& one : times)
            if (const Ns least = latency + std::llround(ns_per_byte * static_cast<double>(one.bytes));
                least > one.time &&
                static_cast<double>(least - one.time) <= kAllowedError * static_cast<double>(one.time))
                one.time = least;
        times.push_back(
            {kTableEnd, last.time + std::llround(ns_per_byte * static_cast<double>(kTableEnd - last.bytes))});
    }
    Link link{latency, 0};
    Ns shortest = std::numeric_limits<Ns>::max();
    for (auto one = times.rbegin(); one != times.rend(); ++one)
        if (one->time > latency && one->time < shortest) {  // a disturbance makes a measurement longer
            shortest = one->time;
            link.by_size.push_back({one->bytes, static_cast<double>(one->bytes) * 1e9 / occupied(*one)});
            link.bandwidth = std::max(link.bandwidth, link.by_size.back().bandwidth);
        }
    std::reverse(link.by_size.begin(), link.by_size.end());
    return link.by_size.empty() ? Link{latency} : link;
}

// The median of all pairs, by size.
std::optional<Link> link_between(Ranks& ranks, const std::vector<Pair>& pairs) {
    std::map<Bytes, std::vector<Ns>> by_size;
    for (const Pair& pair : pairs)
        for (const SizedTime& one : times_between(ranks, pair, kBudget / std::ssize(pairs)))
            by_size[one.bytes].push_back(one.time);
    if (by_size.empty())
        return std::nullopt;
    std::vector<SizedTime> times;
    for (auto& [bytes, of_pairs] : by_size)
        times.push_back({bytes, upper_median(std::move(of_pairs))});
    return link_of(times);
}

}  // namespace

Link fitted_link(Ns smallest, const std::vector<SizedTime>& times) {
    double weights = 0, sizes = 0, all = 0, squares = 0, products = 0;
    for (const auto& [bytes, time] : times) {
        const double weight = 1 / (static_cast<double>(time) * static_cast<double>(time)),
                     size = static_cast<double>(bytes), over = static_cast<double>(time - smallest);
        weights += weight;
        sizes += weight * size;
        all += weight * over;
        squares += weight * size * size;
        products += weight * size * over;
    }
    const double slope = (weights * products - sizes * all) / (weights * squares - sizes * sizes);
    if (!(slope > 0))
        return {smallest};
    const double intercept = std::max(0.0, (all - slope * sizes) / weights);
    return {smallest, 1e9 / slope, static_cast<Bytes>(std::llround(intercept / slope))};
}

Link link_of(const std::vector<SizedTime>& times) {
    const std::vector<SizedTime> rest(times.begin() + 1, times.end());
    const Link line = fitted_link(times.front().time, rest);
    if (std::ranges::all_of(rest, [&](const SizedTime& one) { return error_of(line, one) <= kAllowedError; }))
        return line;
    return table_of(times);
}

LinksOfRanks measure_links(Ranks& ranks, const std::string& host) {
    Message name;
    write_text(name, host);
    std::vector<std::string> hosts;
    std::map<std::string, std::vector<int>> by_host;
    for (const Message& host_message : all_gather(ranks, name)) {
        const auto rank = static_cast<int>(hosts.size());
        hosts.push_back(MessageReader(host_message).read_text());
        by_host[hosts.back()].push_back(rank);
    }
    std::vector<Pair> inside, between;
    for (int rank = 0; rank < ranks.size(); ++rank) {
        const std::vector<int>& together = by_host[hosts[static_cast<std::size_t>(rank)]];
        if (together.front() != rank)
            continue;
        if (rank > 0)
            between.push_back({0, rank});
        if (inside.empty() && together.size() > 1)
            inside.push_back({rank, together.back()});
    }
    LinksOfRanks links;
    links.inside = link_between(ranks, inside);
    links.between = link_between(ranks, between);
    return links;
}

}  // namespace pw
