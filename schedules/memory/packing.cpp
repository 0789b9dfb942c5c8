// The offsets of a device's buffers in its arena.
#include "schedules/memory/buffers.h"
#include "schedules/memory/packing_search.h"
#include "workloads/interruption.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <utility>

namespace pw {

namespace {

using Order = std::vector<int>;  // indices of a device's buffers

// If the pairs of buffers on a device, summed over all devices, are more than this, only the order of starts is tried:
// the time of the remaining orders grows with the pairs.
constexpr double kMostPairs = 5e7;

// Returns the most bytes that live at the same time: no arena is smaller.
Bytes most_live(const std::vector<Buffer>& buffers, const Order& order) {
    int positions = 0;
    for (const int k : order)
        positions = std::max({positions, buffers[k].first + 1, buffers[k].last + 1});
    std::vector<Bytes> change(static_cast<std::size_t>(positions) + 1, 0);
    for (const int k : order) {
        change[buffers[k].first] += buffers[k].bytes;
        change[buffers[k].last + 1] -= buffers[k].bytes;
        if (buffers[k].lives_on())
            change[0] += buffers[k].bytes;
    }
    Bytes now = 0, peak = 0;
    for (const Bytes step : change)
        peak = std::max(peak, now += step);
    return peak;
}

// Free space at a moment: gaps between buffers, and everything above them.
class FreeSpace {
public:
    // Takes bytes from the smallest gap that holds them, else on top.
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

// Returns the buffers in the order of their starts; among equal starts, the longest-lived first.
Order by_start(const std::vector<Buffer>& buffers, std::span<const int> own) {
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

// Gives buffers offsets as an allocator would: in the order of their starts, reusing the space of buffers that have
// ended. Returns the size of the arena.
Bytes place_by_start(const std::vector<Buffer>& buffers, const Order& order, std::vector<Bytes>& offset) {
    int positions = 0;
    for (const int k : order)
        positions = std::max(positions, buffers[k].last + 1);
    // Linked lists of the buffers that end at each position: the first of each list, and the successor of each buffer.
    std::vector<int> first_ended(static_cast<std::size_t>(positions), -1), next_ended(order.size(), -1);
    FreeSpace space;
    Bytes arena = 0;
    int now = 0;
    for (int at = 0; at < static_cast<int>(order.size()); ++at) {
        const Buffer& buffer = buffers[order[at]];
        for (; now < buffer.first; ++now)
            for (int ended = first_ended[now]; ended >= 0; ended = next_ended[ended])
                space.give_back(offset[order[ended]], buffers[order[ended]].bytes);
        offset[order[at]] = space.take(buffer.bytes);
        arena = std::max(arena, space.top());
        next_ended[at] = std::exchange(first_ended[buffer.last], at);
    }
    return arena;
}

// A buffer with its offset.
struct Placed {
    Bytes offset, end;
    int first, last;
};

// Returns whether two buffers never live at the same time. A buffer that lives on in the next step surrounds what is
// apart from it, and meets every other such buffer.
bool are_apart(const Placed& a, const Buffer& b) {
    const int ends_before = (a.last < b.first ? 1 : 0) + (b.last < a.first ? 1 : 0);
    const int live_on = (a.last < a.first ? 1 : 0) + (b.lives_on() ? 1 : 0);
    return ends_before > live_on;
}

// Gives buffers offsets in any order, each in the smallest gap that is free for its whole lifetime, else on top.
// Returns the size of the arena, or `limit` as soon as the arena is no smaller.
Bytes place(const std::vector<Buffer>& buffers, const Order& order, Bytes limit, std::vector<Bytes>& offset) {
    std::vector<Placed> placed;  // by offset
    placed.reserve(order.size());
    Bytes arena = 0;
    for (const int k : order) {
        const Buffer& buffer = buffers[k];
        Bytes top = 0, best = -1, smallest = 0;
        for (const Placed& other : placed) {
            if (are_apart(other, buffer))
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
                                       [](Bytes value, const Placed& other) { return value < other.offset; }),
                      {at, at + buffer.bytes, buffer.first, buffer.last});
    }
    return arena;
}

// A key puts large buffers first, long-lived buffers first, or combines both. The second number breaks ties.
using PackingKey = std::pair<double, double>;
double size_of(const Buffer& buffer) { return static_cast<double>(buffer.bytes); }
double life_of(const Buffer& buffer) { return buffer.last - buffer.first + 1; }
PackingKey by_first(const Buffer& buffer) { return {buffer.first, -buffer.last}; }
PackingKey by_size(const Buffer& buffer) { return {-size_of(buffer), buffer.first}; }
PackingKey by_area(const Buffer& buffer) { return {-size_of(buffer) * life_of(buffer), buffer.first}; }
PackingKey by_life(const Buffer& buffer) { return {-life_of(buffer), -size_of(buffer)}; }

// The search runs only if the orders have found no arena below this many times the peak.
constexpr double kClose = 1.02;
// The searches, in this order: the limit as a multiple of the peak, and the number of partial packings to keep.
constexpr struct {
    double limit;
    int width;
} kSearches[] = {{1.02, 8},  {1.05, 8},   {1.02, 48}, {1.05, 48}, {1.08, 48}, {1.1, 48},
                 {1.1, 200}, {1.1, 1000}, {1.13, 48}, {1.16, 48}, {1.2, 48}};
// Devices with more buffers times partial packings than this are not searched.
constexpr std::size_t kMostPartials = 200'000;

// Buffers in the order of their starts, with time forwards or backwards.
struct Sequence {
    Order order;
    std::vector<LiveRange> ranges;
};

Sequence sequence_of(const std::vector<Buffer>& buffers, Order order, int end, bool forwards) {
    if (!forwards)
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
            return std::pair(-buffers[a].last, buffers[a].first) < std::pair(-buffers[b].last, buffers[b].first);
        });
    Sequence sequence{std::move(order), {}};
    for (const int k : sequence.order) {
        const auto [first, last] = std::pair(buffers[k].first, buffers[k].last);
        sequence.ranges.push_back({buffers[k].bytes, forwards ? first : end - last, forwards ? last : end - first});
    }
    return sequence;
}

// Gives buffers offsets in a smaller arena than the existing one, or leaves them as they are. Returns the size of the
// arena. `order` is the order of starts. Buffers that live all the time are at the bottom.
Bytes search_places(const std::vector<Buffer>& buffers, Order order, Bytes peak, Bytes arena,
                    std::vector<Bytes>& offset) {
    int end = 0;
    Bytes unit = 0, bottom = 0;  // offsets are multiples of the common divisor of all sizes
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
    const Sequence forwards = sequence_of(buffers, order, end, true),
                   backwards = sequence_of(buffers, order, end, false);
    for (const auto& [times, width] : kSearches) {
        Interruption::point();
        const auto limit = static_cast<Bytes>(times * static_cast<double>(peak)) / unit * unit;
        if (limit >= arena || order.size() * static_cast<std::size_t>(width) > kMostPartials)
            continue;
        for (const Sequence* sequence : {&forwards, &backwards}) {
            const std::vector<Bytes> found = offsets_below(sequence->ranges, limit - bottom, width);
            if (found.empty())
                continue;
            arena = bottom;
            for (std::size_t at = 0; at < found.size(); ++at) {
                offset[sequence->order[at]] = bottom + found[at];
                arena = std::max(arena, bottom + found[at] + sequence->ranges[at].bytes);
            }
            Bytes below = 0;
            for (const int k : fixed)
                offset[k] = std::exchange(below, below + buffers[k].bytes);
            return arena;
        }
    }
    return arena;
}

// Places buffers of which some live on in the next step. These are at the bottom: all of them live at both ends of the
// list. Next come the buffers that live while all of these do, or else the order of the key. Returns the size of the
// smallest arena.
Bytes place_around(const std::vector<Buffer>& buffers, Order order, Bytes enough, std::vector<Bytes>& offset) {
    const Bytes least = std::max(enough, most_live(buffers, order));
    int until = std::numeric_limits<int>::max(), from = 0;
    for (const int k : order)
        if (buffers[k].lives_on()) {
            until = std::min(until, buffers[k].last);
            from = std::max(from, buffers[k].first);
        }
    const auto is_at_an_end = [&](int k) { return buffers[k].first <= until || buffers[k].last >= from; };
    const auto lives_on = [&](int k) { return buffers[k].lives_on(); };
    Bytes arena = std::numeric_limits<Bytes>::max();
    std::vector<Bytes> other = offset;
    for (const auto& key : {by_first, by_size, by_area, by_life})
        for (const bool ends_first : {true, false}) {
            Interruption::point();
            if (arena <= least)
                return arena;
            std::ranges::stable_sort(order, {}, [&](int k) { return key(buffers[k]); });
            if (ends_first)
                std::stable_partition(order.begin(), order.end(), is_at_an_end);
            std::stable_partition(order.begin(), order.end(), lives_on);
            if (const Bytes size = place(buffers, order, arena, other); size < arena) {
                arena = size;
                for (const int k : order)
                    offset[k] = other[k];
            }
        }
    return arena;
}

// No order is best for all plans: the smallest arena is taken, or the first arena that is small enough. If no arena is
// close to the peak, the search runs.
Bytes pack_device(const std::vector<Buffer>& buffers, std::span<const int> own, bool thorough, Bytes enough,
                  std::vector<Bytes>& offset) {
    if (std::ranges::any_of(own, [&](int k) { return buffers[k].lives_on(); }))
        return place_around(buffers, Order(own.begin(), own.end()), enough, offset);
    Order order = by_start(buffers, own);
    Bytes arena = place_by_start(buffers, order, offset);
    if (!thorough || arena <= enough)
        return arena;
    const Bytes peak = most_live(buffers, order), least = std::max(enough, peak);
    if (arena <= least)
        return arena;
    const Order born = order;
    std::vector<Bytes> other = offset;
    for (const auto& key : {by_size, by_area, by_life}) {
        Interruption::point();
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
    for (int device = 0; device < devices; ++device) {
        Interruption::point();
        packing.arena[device] =
            pack_device(buffers, own[device], pairs <= kMostPairs, enough.empty() ? 0 : enough[device], packing.offset);
    }
    return packing;
}

}  // namespace pw
