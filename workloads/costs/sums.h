// How the holders of a stage sum their gradients: in rounds of messages over the same links, hosts, switches and buses
// as all other messages.
#pragma once

#include "workloads/text/choice.h"
#include "workloads/units.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pw {

enum class SumAlgorithm : std::uint8_t {
    // In 2 (r - 1) steps each of r devices sends 1/r of the bytes to the next device, first adding and then copying. No
    // algorithm sends fewer bytes per device (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters
    // of workstations", 2009).
    Ring,
    // All bytes go up a binary tree, added at every device, and down again: fewer latencies, more bytes.
    Tree,
    // Each host adds up a part on each of its devices, rings between the hosts add up every part, and the devices of a
    // host exchange the parts: fewer bytes between hosts. If the hosts do not have equally many of the devices, a ring.
    TwoLevel,
    // The same inside hosts, and trees of hosts between them, through which the bytes of a part flow in pieces: NCCL's
    // double binary trees, in which each host sends and receives all bytes twice (NVIDIA/nccl, src/graph/tuning.cc).
    TreeOfHosts
};
template <>
inline constexpr Choice<SumAlgorithm> kChoices<SumAlgorithm>[] = {{"ring", SumAlgorithm::Ring},
                                                                  {"tree", SumAlgorithm::Tree},
                                                                  {"two_level", SumAlgorithm::TwoLevel},
                                                                  {"tree_of_hosts", SumAlgorithm::TreeOfHosts}};

// Returns whether devices can end with the sums of their parts only, as ZeRO needs.
constexpr bool has_parts(SumAlgorithm algorithm) {
    return algorithm == SumAlgorithm::Ring || algorithm == SumAlgorithm::TwoLevel;
}

// Steps in sequence, each with the same messages. The messages of a step start together, and the step ends when all
// have arrived.
struct SumRound {
    struct Pair {
        int from, to;  // devices
        // Adapters of each host that carry the message between hosts: a ring through all devices of a host is as many
        // rings, each with a part of the bytes and an adapter of its own, as NCCL's channels are.
        int adapters = 1;
        bool operator==(const Pair&) const = default;
    };
    std::vector<Pair> messages;
    int steps = 1;
    int parts = 1;  // a message has bytes / parts
    bool operator==(const SumRound&) const = default;
};

// S of a stage among its holders, without the holders that a tie adds, or the end of U, which gathers weights.
struct StageSum {
    Bytes bytes = 0;
    std::vector<SumRound> rounds;  // of all buckets
    Ns alone = 0;                  // time of the sum if nothing else is under way
    int buckets = 1;               // equally large, in sequence
    bool operator==(const StageSum&) const = default;

    Ns last_bucket() const { return (alone + buckets - 1) / buckets; }
    // Returns when the first bucket is full, from the start of the pass that makes the gradients.
    Ns first_full(Ns backward) const { return (backward + buckets - 1) / buckets; }
    // Returns the time of the sum that overlaps that pass. After the pass, the sum takes that much less.
    Ns overlapped(Ns backward) const { return std::min(alone - last_bucket(), backward - first_full(backward)); }
};

inline constexpr int kMostBuckets = 4096;  // of a stage
// Returns the number of buckets of a stage, of at most `bucket` bytes each unless these are too many. `bucket` 0: one.
inline int buckets_of(Bytes weights, Bytes bucket) {
    return bucket == 0 ? 1 : static_cast<int>(std::clamp<Bytes>((weights + bucket - 1) / bucket, 1, kMostBuckets));
}
// Returns the rounds of `buckets` equal buckets, in sequence.
std::vector<SumRound> in_buckets(std::vector<SumRound> rounds, int buckets);

// Returns the rounds in which `devices` devices sum, none for a single device. `host`, by device, may be empty. A ring
// visits all devices of a host, in their order, before it leaves the host. With Scatter the rounds end when each device
// has the sum of a part. The same rounds from the last to the first then distribute the parts. Trees have no parts.
enum class SumPart : std::uint8_t { All, Scatter };
std::vector<SumRound> rounds_of(SumAlgorithm algorithm, std::vector<int> devices, const std::vector<int>& host,
                                SumPart part = SumPart::All);

}  // namespace pw
