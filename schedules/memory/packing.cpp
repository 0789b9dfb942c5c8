// Where the buffers of a device lie in its arena.
#include "schedules/memory/buffers.h"
#include "schedules/memory/packing_search.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <utility>

namespace pw {

namespace {

using Order = std::vector<int>;  // of the buffers of a device

// Beyond so many pairs of buffers of one device, over all devices, only the order of birth is tried: the time of the
// others grows with the pairs.
constexpr double kMostPairs = 5e7;

// Returns the bytes that live together at most: no arena is smaller.
Bytes most_alive(const std::vector<Buffer>& buffers, const Order& order) {
    int positions = 0;
    for (const int k : order)
        positions = std::max(positions, buffers[k].last + 1);
    std::vector<Bytes> change(static_cast<std::size_t>(positions) + 1, 0);
    for (const int k : order) {
        change[buffers[k].first] += buffers[k].bytes;
        change[buffers[k].last + 1] -= buffers[k].bytes;
    }
    Bytes now = 0, peak = 0;
    for (const Bytes step : change)
        peak = std::max(peak, now += step);
    return peak;
}

// What is free at one moment: gaps between buffers, and all above them.
class FreeSpace {
public:
    // Takes bytes in the smallest gap that holds them, else on top.
    Bytes take(Bytes bytes) {
        const auto found = by_size_.lower_bound({bytes, 0});
        if (found == by_size_.end()) {
            top_ += bytes;
            return top_ - bytes;
        }
        const auto [size, offset] = *found;
        remove(offset, size);
        if (size > bytes)
            add(offset + bytes, size - bytes);
        return offset;
    }

    void give_back(Bytes offset, Bytes bytes) {
        const auto above = gaps_.find(offset + bytes);
        if (above != gaps_.end()) {
            bytes += above->second;
            remove(above->first, above->second);
        }
        if (const auto next = gaps_.lower_bound(offset); next != gaps_.begin()) {
            const auto [below, size] = *std::prev(next);
            if (below + size == offset) {
                remove(below, size);
                offset = below;
                bytes += size;
            }
        }
        if (offset + bytes == top_)
            top_ = offset;
        else
            add(offset, bytes);
    }

    Bytes top() const { return top_; }

private:
    void add(Bytes offset, Bytes size) {
        gaps_[offset] = size;
        by_size_.insert({size, offset});
    }
    void remove(Bytes offset, Bytes size) {
        gaps_.erase(offset);
        by_size_.erase({size, offset});
    }

    std::map<Bytes, Bytes> gaps_;                // offset -> size
    std::set<std::pair<Bytes, Bytes>> by_size_;  // (size, offset)
    Bytes top_ = 0;
};

// Returns the buffers in the order of birth, the longest-lived of those born together first.
Order by_birth(const std::vector<Buffer>& buffers, std::span<const int> own) {
    int positions = 0;
    for (const int k : own)
        positions = std::max(positions, buffers[k].first + 1);
    std::vector<int> count(static_cast<std::size_t>(positions), 0);
    for (const int k : own)
        ++count[buffers[k].first];
    Rows born(count);
    for (auto k = own.rbegin(); k != own.rend(); ++k)
        born.item(buffers[*k].first, --count[buffers[*k].first]) = *k;
    Order order;
    order.reserve(own.size());
    for (int position = 0; position < positions; ++position) {
        const auto first = std::ssize(order);
        order.insert(order.end(), born[position].begin(), born[position].end());
        std::stable_sort(order.begin() + first, order.end(),
                         [&](int a, int b) { return buffers[a].last > buffers[b].last; });
    }
    return order;
}

// Gives buffers offsets as an allocator would: in the order of birth, what has died is free. Returns the size of the
// arena.
Bytes place_by_birth(const std::vector<Buffer>& buffers, const Order& order, std::vector<Bytes>& offset) {
    int positions = 0;
    for (const int k : order)
        positions = std::max(positions, buffers[k].last + 1);
    // What dies at a position is a list: its first in the order, and then the next of each.
    std::vector<int> first_dead(static_cast<std::size_t>(positions), -1), next_dead(order.size(), -1);
    FreeSpace space;
    Bytes arena = 0;
    int now = 0;
    for (int at = 0; at < static_cast<int>(order.size()); ++at) {
        const Buffer& buffer = buffers[order[at]];
        for (; now < buffer.first; ++now)
            for (int dead = first_dead[now]; dead >= 0; dead = next_dead[dead])
                space.give_back(offset[order[dead]], buffers[order[dead]].bytes);
        offset[order[at]] = space.take(buffer.bytes);
        arena = std::max(arena, space.top());
        next_dead[at] = std::exchange(first_dead[buffer.last], at);
    }
    return arena;
}

// A buffer that has its place.
struct Placed {
    Bytes offset, end;
    int first, last;
};

// Gives buffers offsets in any order, each in the smallest gap that is free all its life, else on top. Returns the size
// of the arena, or `limit` as soon as it is no smaller.
Bytes place(const std::vector<Buffer>& buffers, const Order& order, Bytes limit, std::vector<Bytes>& offset) {
    std::vector<Placed> placed;  // by offset
    placed.reserve(order.size());
    Bytes arena = 0;
    for (const int k : order) {
        const Buffer& buffer = buffers[k];
        Bytes top = 0, best = -1, smallest = 0;
        for (const Placed& other : placed) {
            if (other.first > buffer.last || buffer.first > other.last)
                continue;
            const Bytes gap = other.offset - top;
            if (gap >= buffer.bytes && (best < 0 || gap < smallest)) {
                best = top;
                smallest = gap;
            }
            top = std::max(top, other.end);
        }
        const Bytes at = best < 0 ? top : best;
        arena = std::max(arena, at + buffer.bytes);
        if (arena >= limit)
            return limit;
        offset[k] = at;
        placed.insert(std::upper_bound(placed.begin(), placed.end(), at,
                                       [](Bytes wanted, const Placed& other) { return wanted < other.offset; }),
                      {at, at + buffer.bytes, buffer.first, buffer.last});
    }
    return arena;
}

// A key puts large buffers first, long-lived ones first, or both in one; the first come first among equals.
using PackingKey = std::pair<double, double>;
double size_of(const Buffer& buffer) { return static_cast<double>(buffer.bytes); }
double life_of(const Buffer& buffer) { return buffer.last - buffer.first + 1; }
PackingKey by_size(const Buffer& buffer) { return {-size_of(buffer), buffer.first}; }
PackingKey by_area(const Buffer& buffer) { return {-size_of(buffer) * life_of(buffer), buffer.first}; }
PackingKey by_life(const Buffer& buffer) { return {-life_of(buffer), -size_of(buffer)}; }

// Searches beyond what the orders have found are for arenas that are larger than this many times the peak.
constexpr double kClose = 1.02;
// What is searched for, in this order: an arena of so many times the peak, keeping so many ways.
constexpr struct {
    double limit;
    int width;
} kSearches[] = {{1.02, 8},  {1.05, 8},   {1.02, 48}, {1.05, 48}, {1.08, 48}, {1.1, 48},
                 {1.1, 200}, {1.1, 1000}, {1.13, 48}, {1.16, 48}, {1.2, 48}};
// Buffers times ways, beyond which a device is not searched for.
constexpr std::size_t kMostWays = 200'000;

// Buffers in the order of their births, with time forwards or backwards.
struct Births {
    Order order;
    std::vector<Living> living;
};

Births births_of(const std::vector<Buffer>& buffers, Order order, int end, bool forwards) {
    if (!forwards)
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
            return std::pair(-buffers[a].last, buffers[a].first) < std::pair(-buffers[b].last, buffers[b].first);
        });
    Births births{std::move(order), {}};
    for (const int k : births.order) {
        const auto [first, last] = std::pair(buffers[k].first, buffers[k].last);
        births.living.push_back({buffers[k].bytes, forwards ? first : end - last, forwards ? last : end - first});
    }
    return births;
}

// Gives buffers places in a smaller arena than the one there is, or leaves them alone; returns the size of the arena.
// `order` is that of birth. What lives all the time goes to the bottom, where it is in nobody's way.
Bytes search_places(const std::vector<Buffer>& buffers, Order order, Bytes peak, Bytes arena,
                    std::vector<Bytes>& offset) {
    int end = 0;
    Bytes unit = 0, bottom = 0;  // offsets are multiples of what the sizes are multiples of
    for (const int k : order) {
        end = std::max(end, buffers[k].last);
        unit = std::gcd(unit, buffers[k].bytes);
    }
    const auto moving = std::stable_partition(order.begin(), order.end(),
                                              [&](int k) { return buffers[k].first == 0 && buffers[k].last == end; });
    const Order fixed(order.begin(), moving);
    for (const int k : fixed)
        bottom += buffers[k].bytes;
    order.erase(order.begin(), moving);
    const Births forwards = births_of(buffers, order, end, true), backwards = births_of(buffers, order, end, false);
    for (const auto& [times, width] : kSearches) {
        const auto limit = static_cast<Bytes>(times * static_cast<double>(peak)) / unit * unit;
        if (limit >= arena || order.size() * static_cast<std::size_t>(width) > kMostWays)
            continue;
        for (const Births* births : {&forwards, &backwards}) {
            const std::vector<Bytes> found = places_below(births->living, limit - bottom, width);
            if (found.empty())
                continue;
            arena = bottom;
            for (std::size_t at = 0; at < found.size(); ++at) {
                offset[births->order[at]] = bottom + found[at];
                arena = std::max(arena, bottom + found[at] + births->living[at].bytes);
            }
            Bytes below = 0;
            for (const int k : fixed)
                offset[k] = std::exchange(below, below + buffers[k].bytes);
            return arena;
        }
    }
    return arena;
}

// No order is the best for all plans: the one that leaves the smallest arena counts, or the first one that is small
// enough. Where none comes close to the peak, places are searched for.
Bytes pack_device(const std::vector<Buffer>& buffers, std::span<const int> own, bool thorough, Bytes enough,
                  std::vector<Bytes>& offset) {
    Order order = by_birth(buffers, own);
    Bytes arena = place_by_birth(buffers, order, offset);
    if (!thorough || arena <= enough)
        return arena;
    const Bytes peak = most_alive(buffers, order), least = std::max(enough, peak);
    if (arena <= least)
        return arena;
    const Order born = order;
    std::vector<Bytes> other = offset;
    for (const auto& key : {by_size, by_area, by_life}) {
        if (arena <= least)
            break;
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key(buffers[a]) < key(buffers[b]); });
        if (const Bytes size = place(buffers, order, arena, other); size < arena) {
            arena = size;
            for (const int k : order)
                offset[k] = other[k];
        }
    }
    if (arena <= enough || static_cast<double>(arena) <= kClose * static_cast<double>(peak))
        return arena;
    return search_places(buffers, born, peak, arena, offset);
}

}  // namespace

Packing pack(const std::vector<Buffer>& buffers, int devices, std::span<const Bytes> enough) {
    Packing packing{std::vector<Bytes>(buffers.size(), 0), std::vector<Bytes>(static_cast<std::size_t>(devices), 0)};
    const Rows own = by_device(buffers, devices);
    double pairs = 0;
    for (int device = 0; device < devices; ++device)
        pairs += static_cast<double>(own[device].size()) * static_cast<double>(own[device].size());
    for (int device = 0; device < devices; ++device)
        packing.arena[device] =
            pack_device(buffers, own[device], pairs <= kMostPairs, enough.empty() ? 0 : enough[device], packing.offset);
    return packing;
}

}  // namespace pw
