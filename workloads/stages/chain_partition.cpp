#include "workloads/stages/chain_partition.h"

#include "workloads/bounded.h"
#include "workloads/error.h"
#include "workloads/rounding.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace pw {
namespace {

constexpr Ns kNever = std::numeric_limits<Ns>::max();
constexpr std::int64_t kMostStates = 200'000'000;  // of the table in `best_of_all`

template <class T>
std::vector<T> prefix_sums(const std::vector<T>& values) {
    std::vector<T> sums(values.size() + 1, 0);
    for (std::size_t i = 0; i < values.size(); ++i)
        sums[i + 1] = sums[i] + values[i];
    return sums;
}

// Layers [from, to) as part number `part`.
struct Problem {
    Problem(const Chain& chain, const std::vector<ChainDevice>& devices_of_parts)
        : layers(static_cast<int>(chain.time.size())),
          parts(static_cast<int>(devices_of_parts.size())),
          devices(devices_of_parts),
          cut(chain.cut),
          time_sums(prefix_sums(chain.time)),
          byte_sums(prefix_sums(chain.bytes)) {}

    Bytes bytes(int from, int to) const { return byte_sums.size() == 1 ? 0 : byte_sums[to] - byte_sums[from]; }
    bool holds(int part, int from, int to) const { return bytes(from, to) <= devices[part].memory; }
    Ns compute(int part, int from, int to) const {
        const Ns time = time_sums[to] - time_sums[from];
        const double speed = devices[part].speed;
        return speed == 1 ? time : bounded(static_cast<double>(time) / speed);
    }
    Ns cost(int part, int from, int to) const {
        Ns cost = compute(part, from, to);
        if (!cut.empty())
            cost += (from > 0 ? cut[from] : 0) + (to < layers ? cut[to] : 0);
        return cost;
    }
    // The latest end and the earliest begin of a part with which no other part is empty.
    int latest_end(int part) const { return layers - (parts - 1 - part); }

    int layers, parts;
    const std::vector<ChainDevice>& devices;
    const std::vector<Ns>& cut;
    std::vector<Ns> time_sums;
    std::vector<Bytes> byte_sums;
};

// The last of `step` = 1, 2, ..., most for which fits(step), which is true up to some step and false after it.
// Doubles the reach from `guess`, then halves the range.
template <class Fits>
int last_that_fits(int most, int guess, Fits fits) {
    int yes = 0, no = most + 1;
    for (int step = std::clamp(guess, 1, std::max(1, most)); yes < most && no > most; step *= 2) {
        const int reach = std::min(most, yes + step);
        (fits(reach) ? yes : no) = reach;
    }
    while (no - yes > 1) {
        const int middle = yes + (no - yes) / 2;
        (fits(middle) ? yes : no) = middle;
    }
    return yes;
}

// Every part takes as many layers as fit into `limit`, from the first part on. Without costs of cuts no partition
// reaches farther.
struct Probe {
    bool complete = false;  // all layers are placed
    bool stuck = false;     // a part took none: a shorter part before it may help
    Ns bottleneck = 0;
    Ns next = kNever;        // the smallest limit with another result
    int part = 0, from = 0;  // the last part that was begun, and its first layer
};

Probe probe(const Problem& problem, Ns limit) {
    Probe result;
    int from = 0;
    const int guess = std::max(1, problem.layers / problem.parts);
    for (int part = 0; part < problem.parts; ++part) {
        const int most = problem.latest_end(part) - from;
        const int count = last_that_fits(most, guess, [&](int layers) {
            return problem.compute(part, from, from + layers) <= limit && problem.holds(part, from, from + layers);
        });
        if (count < most)
            result.next = std::min(result.next, std::max(limit + 1, problem.compute(part, from, from + count + 1)));
        result.part = part;
        result.from = from;
        result.stuck = count == 0;
        if (result.stuck)
            return result;
        result.bottleneck = std::max(result.bottleneck, problem.compute(part, from, from + count));
        from += count;
    }
    result.complete = from == problem.layers;
    return result;
}

// The longest layer on the fastest device, and a division without remainders.
Ns least_imaginable(const Problem& problem) {
    double speeds = 0;
    int fastest = 0;
    for (int part = 0; part < problem.parts; ++part) {
        speeds += problem.devices[part].speed;
        if (problem.devices[part].speed > problem.devices[fastest].speed)
            fastest = part;
    }
    // Each part's time is rounded by half a nanosecond at most. The factor is for this sum's own rounding.
    Ns least = static_cast<Ns>((static_cast<double>(problem.time_sums.back()) / speeds - 1) * (1 - kRounding));
    for (int layer = 0; layer < problem.layers; ++layer)
        least = std::max(least, problem.compute(fastest, layer, layer + 1));
    return std::max<Ns>(least, 0);
}

// Bisection that keeps `high` feasible and everything below `low` infeasible. A feasible limit lowers `high` to the
// resulting bottleneck, an infeasible limit raises `low` to the smallest limit that changes anything. Both are realised
// sums, so few probes are needed. Returns nothing if a probe is inconclusive.
std::optional<Ns> least_by_probing(const Problem& problem) {
    const Probe loosest = probe(problem, kNever - 1);
    if (!loosest.complete)
        return std::nullopt;
    Ns low = least_imaginable(problem), high = loosest.bottleneck;
    while (low < high) {
        const Probe middle = probe(problem, low + (high - low) / 2);
        if (middle.stuck)
            return std::nullopt;
        if (middle.complete)
            high = middle.bottleneck;
        else
            low = middle.next;
    }
    return high;
}

// Fills parts from the last part on, which makes every cut as early as possible. Returns nothing if a part is stuck.
std::vector<int> earliest_starts(const Problem& problem, Ns limit) {
    std::vector<int> starts(static_cast<std::size_t>(problem.parts), 0);
    int to = problem.layers;
    const int guess = std::max(1, problem.layers / problem.parts);
    for (int part = problem.parts - 1; part > 0; --part) {
        const int count = last_that_fits(to - part, guess, [&](int layers) {
            return problem.compute(part, to - layers, to) <= limit && problem.holds(part, to - layers, to);
        });
        if (count == 0)
            return {};
        to -= count;
        starts[static_cast<std::size_t>(part)] = to;
    }
    return problem.compute(0, 0, to) <= limit && problem.holds(0, 0, to) ? starts : std::vector<int>{};
}

// table[part][from]: the least bottleneck of `part` and all later parts when `part` starts at layer `from`.
using Table = std::vector<std::vector<Ns>>;

Ns best_from(const Problem& problem, const Table& table, int part, int from) {
    if (part == problem.parts - 1)
        return problem.holds(part, from, problem.layers) ? problem.cost(part, from, problem.layers) : kNever;
    Ns best = kNever;
    for (int to = from + 1; to <= problem.latest_end(part); ++to) {
        if (problem.compute(part, from, to) >= best || !problem.holds(part, from, to))
            break;  // and so for all longer parts
        best = std::min(best, std::max(problem.cost(part, from, to), table[part + 1][to]));
    }
    return best;
}

ChainPartition best_of_all(const Problem& problem) {
    if (std::int64_t{problem.layers} * problem.parts > kMostStates)
        fail(
            "{} layers in {} parts on unequal devices or with costs of cuts: more than {} states to search; take "
            "fewer parts, or join layers",
            problem.layers, problem.parts, kMostStates);
    Table table(static_cast<std::size_t>(problem.parts),
                std::vector<Ns>(static_cast<std::size_t>(problem.layers) + 1, kNever));
    for (int part = problem.parts - 1; part >= 0; --part)
        for (int from = part; from < problem.latest_end(part); ++from)
            table[part][from] = best_from(problem, table, part, from);
    ChainPartition result{{}, table[0][0]};
    if (result.bottleneck == kNever)
        return result;
    int from = 0;
    for (int part = 0; part < problem.parts; ++part) {
        result.starts.push_back(from);
        if (part + 1 == problem.parts)
            break;
        int to = from + 1;
        while (std::max(problem.cost(part, from, to), table[part + 1][to]) > result.bottleneck ||
               !problem.holds(part, from, to))
            ++to;
        from = to;
    }
    return result;
}

ChainPartition without_room(const Problem& problem) {
    const Probe loosest = probe(problem, kNever - 1);
    const int to = loosest.stuck ? loosest.from + 1 : problem.layers;
    return {{}, 0, ChainShortage{loosest.part, problem.bytes(loosest.from, to), problem.devices[loosest.part].memory}};
}

}  // namespace

ChainPartition partition_chain(const Chain& chain, const std::vector<ChainDevice>& devices) {
    const int layers = static_cast<int>(chain.time.size()), parts = static_cast<int>(devices.size());
    assert(chain.bytes.empty() || chain.bytes.size() == chain.time.size());
    assert(chain.cut.empty() || chain.cut.size() == chain.time.size());
    if (parts < 1 || parts > layers)
        fail("{} layers cannot make {} parts; take 1 to {}", layers, parts, layers);
    const Problem problem(chain, devices);
    if (chain.cut.empty())
        if (const std::optional<Ns> least = least_by_probing(problem))
            if (std::vector<int> starts = earliest_starts(problem, *least); !starts.empty())
                return {std::move(starts), *least};
    ChainPartition result = best_of_all(problem);
    return result.starts.empty() ? without_room(problem) : result;
}

ChainPartition partition_chain(const Chain& chain, int parts) {
    return partition_chain(chain, std::vector<ChainDevice>(static_cast<std::size_t>(std::max(0, parts))));
}

}  // namespace pw
