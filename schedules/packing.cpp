// Where the buffers of a device lie in its arena.
#include "schedules/buffers.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace pw {

namespace {

using Order = std::vector<std::size_t>;  // of the buffers of a device

// Beyond so many pairs of buffers of one device, over all devices, only the order of birth is tried: the time of the
// others grows with the pairs.
constexpr double kMostPairs = 2.5e8;

bool live_together(const Buffer& a, const Buffer& b) { return a.first <= b.last && b.first <= a.last; }

// Bytes that live together at most: no arena is smaller.
Bytes most_alive(const std::vector<Buffer>& buffers, const Order& order) {
    std::map<int, Bytes> change;  // by position
    for (const std::size_t k : order) {
        change[buffers[k].first] += buffers[k].bytes;
        change[buffers[k].last + 1] -= buffers[k].bytes;
    }
    Bytes now = 0, peak = 0;
    for (const auto& [position, bytes] : change)
        peak = std::max(peak, now += bytes);
    return peak;
}

// One after the other in the smallest gap that takes them, else on top. Returns the size of the arena.
// `by_birth`: what has died stays out of everybody's way from then on.
Bytes place(const std::vector<Buffer>& buffers, const Order& order, bool by_birth, std::vector<Bytes>& offset) {
    std::vector<std::size_t> placed;  // by offset
    Bytes arena = 0;
    for (const std::size_t k : order) {
        const Buffer& buffer = buffers[k];
        if (by_birth)
            std::erase_if(placed, [&](std::size_t other) { return buffers[other].last < buffer.first; });
        Bytes top = 0, best = -1, smallest = 0;
        for (const std::size_t other : placed) {
            if (!live_together(buffers[other], buffer))
                continue;
            const Bytes gap = offset[other] - top;
            if (gap >= buffer.bytes && (best < 0 || gap < smallest)) {
                best = top;
                smallest = gap;
            }
            top = std::max(top, offset[other] + buffers[other].bytes);
        }
        offset[k] = best < 0 ? top : best;
        arena = std::max(arena, offset[k] + buffer.bytes);
        placed.insert(
            std::find_if(placed.begin(), placed.end(), [&](std::size_t other) { return offset[other] > offset[k]; }),
            k);
    }
    return arena;
}

// Large ones first, long-lived ones first, or both in one; the first come first among equals.
using Key = std::pair<double, double>;
double size_of(const Buffer& buffer) { return static_cast<double>(buffer.bytes); }
double life_of(const Buffer& buffer) { return buffer.last - buffer.first + 1; }
Key by_size(const Buffer& buffer) { return {-size_of(buffer), buffer.first}; }
Key by_area(const Buffer& buffer) { return {-size_of(buffer) * life_of(buffer), buffer.first}; }
Key by_life(const Buffer& buffer) { return {-life_of(buffer), -size_of(buffer)}; }

// No order is the best for all plans: the one that leaves the smallest arena counts.
Bytes pack_device(const std::vector<Buffer>& buffers, Order order, bool thorough, std::vector<Bytes>& offset) {
    const auto birth = [&](std::size_t k) { return std::tuple(buffers[k].first, -buffers[k].last, k); };
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return birth(a) < birth(b); });
    Bytes arena = place(buffers, order, true, offset);
    const Bytes least = thorough ? most_alive(buffers, order) : arena;
    if (arena == least)
        return arena;
    std::vector<Bytes> other = offset;
    for (const auto& key : {by_size, by_area, by_life}) {
        if (arena == least)
            break;
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return key(buffers[a]) < key(buffers[b]); });
        if (const Bytes size = place(buffers, order, false, other); size < arena) {
            arena = size;
            for (const std::size_t k : order)
                offset[k] = other[k];
        }
    }
    return arena;
}

}  // namespace

Packing pack(const std::vector<Buffer>& buffers, int devices) {
    Packing packing{std::vector<Bytes>(buffers.size(), 0), std::vector<Bytes>(static_cast<std::size_t>(devices), 0)};
    std::vector<Order> of_device(static_cast<std::size_t>(devices));
    for (std::size_t k = 0; k < buffers.size(); ++k)
        of_device[buffers[k].device].push_back(k);
    double pairs = 0;
    for (const Order& order : of_device)
        pairs += static_cast<double>(order.size()) * static_cast<double>(order.size());
    for (int device = 0; device < devices; ++device)
        packing.arena[device] = pack_device(buffers, std::move(of_device[device]), pairs <= kMostPairs, packing.offset);
    return packing;
}

}  // namespace pw
