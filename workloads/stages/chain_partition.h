// Cuts a chain of layers into consecutive parts, one per device, so that the slowest part takes the least time.
#pragma once

#include "workloads/units.h"

#include <limits>
#include <optional>
#include <vector>

namespace pw {

struct Chain {
    std::vector<Ns> time;           // per layer
    std::vector<Ns> cut = {};       // [i]: what a cut before layer i adds to both parts it bounds; empty: nothing
    std::vector<Bytes> bytes = {};  // per layer; empty: none
};

struct ChainDevice {
    double speed = 1;  // layers take time / speed, cuts do not
    Bytes memory = std::numeric_limits<Bytes>::max();
};

// Filling the parts in order, the first one that cannot hold what it must.
struct ChainShortage {
    int part = 0;
    Bytes needs = 0, has = 0;
};

struct ChainPartition {
    std::vector<int> starts;  // first layer of each part; empty: no partition fits into the memory
    Ns bottleneck = 0;
    std::optional<ChainShortage> shortage = {};
};

// Exact. No part is empty; among the best partitions the one whose cuts come first. Throws Error (BadInput) when
// there are more parts than layers. Without cuts and with equal devices the time is far below linear in the layers,
// after one pass over them; in general it is quadratic at worst.
ChainPartition partition_chain(const Chain& chain, int parts);
ChainPartition partition_chain(const Chain& chain, const std::vector<ChainDevice>& devices);

}  // namespace pw
