// How the holders of a stage sum their gradients: rounds of messages over the same links, hosts, switches and buses as
// all others.
#pragma once

#include "workloads/text/choice.h"
#include "workloads/units.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pw {

enum class SumAlgorithm : std::uint8_t {
    // In 2 (r - 1) steps each of r devices hands 1/r of the bytes to the next one, first adding and then copying. No
    // way of summing sends fewer bytes per device (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
    // clusters of workstations", 2009).
    Ring,
    // All bytes go up a binary tree, added at every device, and down again: fewer latencies, more bytes.
    Tree,
    // Each host adds up a part on each of its devices, rings between the hosts do so for every part, and the devices of
    // a host hand the parts round: fewer bytes between hosts. It takes hosts with equally many of the devices, else a
    // ring.
    TwoLevel
};
template <>
inline constexpr Choice<SumAlgorithm> kChoices<SumAlgorithm>[] = {
    {"ring", SumAlgorithm::Ring}, {"tree", SumAlgorithm::Tree}, {"two_level", SumAlgorithm::TwoLevel}};

// Steps one after another, each of the same messages: they start together, and a step ends when all of them are there.
struct SumRound {
    struct Pair {
        int from, to;  // devices
        bool operator==(const Pair&) const = default;
    };
    std::vector<Pair> messages;
    int steps = 1;
    int parts = 1;  // a message has bytes / parts
    bool operator==(const SumRound&) const = default;
};

// S of one stage among its holders, those that a tie adds aside; or what ends U.
struct StageSum {
    Bytes bytes = 0;
    std::vector<SumRound> rounds;  // of all buckets
    Ns alone = 0;                  // what it takes when nothing else is under way
    int buckets = 1;               // equally large, one after the other
    bool operator==(const StageSum&) const = default;

    Ns last_bucket() const { return (alone + buckets - 1) / buckets; }
    // Returns when the first bucket is full, from the start of the pass that makes the gradients and takes so long.
    Ns first_full(Ns backward) const { return (backward + buckets - 1) / buckets; }
    // Returns how much of the sum goes on beside that pass, so that it takes as much less behind it.
    Ns overlapped(Ns backward) const { return std::min(alone - last_bucket(), backward - first_full(backward)); }
};

inline constexpr int kMostBuckets = 4096;  // of a stage
// Returns how many a stage has, of at most `bucket` bytes each where these are not too many; 0: all at once.
inline int buckets_of(Bytes weights, Bytes bucket) {
    return bucket == 0 ? 1 : static_cast<int>(std::clamp<Bytes>((weights + bucket - 1) / bucket, 1, kMostBuckets));
}
// Returns the rounds of so many equal buckets, one after the other.
std::vector<SumRound> in_buckets(std::vector<SumRound> rounds, int buckets);

// Returns the rounds in which so many devices sum; none for one device. `host`, by device, may be empty. Neighbours in
// a ring are those of a host, in their order, before the ring leaves it. With Scatter they end when each device has the
// sum of a part; what is left, to hand the parts round, is the same rounds from the last to the first. Tree has no
// parts.
enum class SumPart : std::uint8_t { All, Scatter };
std::vector<SumRound> rounds_of(SumAlgorithm algorithm, std::vector<int> devices, const std::vector<int>& host,
                                SumPart part = SumPart::All);

}  // namespace pw
