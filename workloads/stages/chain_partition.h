// Cuts a chain of layers into consecutive parts, a part per device, so that the slowest part takes the least time.
#pragma once

#include "workloads/units.h"

#include <limits>
#include <optional>
#include <vector>

namespace pw {

struct Chain {
    std::vector<Ns> time;           // per layer
    std::vector<Ns> cut = {};       // [i]: what a cut before layer i adds to the parts on both sides, nothing if empty
    std::vector<Bytes> bytes = {};  // per layer, none if empty
};

struct ChainDevice {
    double speed = 1;  // layers take time / speed, cuts do not
    Bytes memory = std::numeric_limits<Bytes>::max();
};

// The shortage of the first part that is too small when the parts are filled in order.
struct ChainShortage {
    int part = 0;
    Bytes needs = 0, has = 0;
};

struct ChainPartition {
    std::vector<int> starts;  // first layer of each part, empty when no partition fits into the memory
    Ns bottleneck = 0;
    std::optional<ChainShortage> shortage = {};
};

// Finds a best partition, exactly. No part is empty. Among the best partitions, the result is the partition whose cuts
// come first. Throws Error (BadInput) when there are more parts than layers. Without cuts and with equal devices the
// time is far below linear in the layers, after one pass over the layers. In general the time is quadratic at worst.
ChainPartition partition_chain(const Chain& chain, int parts);
ChainPartition partition_chain(const Chain& chain, const std::vector<ChainDevice>& devices);

}  // namespace pw
