// PipeDream's partitioner: stages with replicas that minimise the time per mini-batch of a pipeline that never
// drains. Transfers overlap with computation, the sum of gradients does not.
//
//   a stage of layers with time T and weights W on m devices, links of bandwidth B
//       (T + 4 (m - 1) W / (m B)) / m
//   a cut that a bytes cross, before or after a stage on m devices (the first stage's end counts with the second)
//       2 a / (B m)
//
// The objective is the maximum of all of these. With several levels, groups of devices of one level are the devices
// of the next: a range of layers takes there the time of its best pipeline below, on all devices of a group.
#pragma once

#include "search/downsets.h"
#include "search/partition.h"
#include "workloads/costs/costs.h"

#include <optional>
#include <vector>

namespace pw {

struct PipedreamLayer {
    double seconds = 0;  // forward and backward
    Bytes output = 0, weights = 0;
    bool data_source = false;  // costs nothing and crosses no cut, since it is in the stage of its first reader
};

struct PipedreamGraph {
    Digraph graph;
    std::vector<PipedreamLayer> layers;
};

// Makes the graph with times and bytes for `samples`, scaled if the profile was measured at another size.
PipedreamGraph pipedream_graph(const Model& model, const Profile& profile, int samples);

struct PipedreamOptions {
    struct Level {
        int devices = 1;
        double bandwidth = 0;  // bytes per second
    };
    std::vector<Level> levels;     // innermost first
    bool charge_transfers = true;  // else only computation and sums of gradients count
    bool straight = false;         // one device per stage
    // A device holds its stage's outputs and weights once per mini-batch in flight. PipeDream counts the level's
    // devices in later stages, divided by the stage's own devices and rounded up. In PipeDream's program the last stage
    // holds no mini-batch, here at least one. `count_own` adds the mini-batch that the stage itself works on.
    std::optional<Bytes> memory = {};
    bool count_own = false;
};

// Finds the best partition. All devices are used. The search is exact, among partitions that cut the graph anywhere, up
// to 60,000 ways to cut (4,000 with several levels). Beyond that only cuts of the forward order are tried, and the
// lower bound assumes equal shares. Without a partition that fits into the memory, `shortage` is the tightest stage of
// the partition that needs the least. Throws Error (Infeasible) when there are fewer layers than straight stages.
Partition plan_pipedream(const PipedreamGraph& graph, const PipedreamOptions& options);

}  // namespace pw
