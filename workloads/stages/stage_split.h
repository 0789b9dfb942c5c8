// A stage split: which layers make each stage. Any topological cut is legal.
#pragma once

#include "workloads/models/layer_graph.h"
#include "workloads/stages/device_balance.h"

#include <string>
#include <vector>

namespace pw {

// layers[stage] holds ascending layer numbers. Every layer is in exactly one stage, and edges never run from a later
// stage to an earlier stage.
struct StageSplit {
    // By stage. An empty stage passes on the tensors that cross the stage.
    std::vector<std::vector<int>> layers;
    std::vector<int> stage_of;  // layer -> stage
    // Layer -> group. The gradients of a tensor's readers in the same group are summed first, in reverse layer order.
    // Then the sums of the groups are added in descending order. When empty, the groups are the stages.
    std::vector<int> reader_groups = {};
    int group_of(int layer) const { return reader_groups.empty() ? stage_of[layer] : reader_groups[layer]; }
    int stages() const { return static_cast<int>(layers.size()); }
};

// Makes the split of these lists of layers. Throws Error (BadInput) naming the layer and the rule that is broken.
StageSplit split_by_lists(const LayerGraph& graph, const std::vector<std::vector<std::string>>& names);
// Makes the split at `cuts`: the first layer of each later stage, in forward order. A prefix ("layer3") means the first
// layer with this prefix.
StageSplit split_at(const LayerGraph& graph, const std::vector<std::string>& cuts);
// Makes the split whose stages have these first layers, ascending from 0. If stages have the same first layer, the last
// of them has the layer and the rest are empty.
StageSplit split_at_layers(const LayerGraph& graph, const std::vector<int>& starts);
// Returns the first stage without layers, or -1.
int first_empty_stage(const StageSplit& split);

// The layers before which a cut may be, ascending from 0. Empty: all.
using CutPlaces = std::vector<int>;

// Gives stages equally many of the ranges between places of cuts, +-1: layers, or blocks.
StageSplit split_even(const LayerGraph& graph, int stages, const CutPlaces& places = {});
// Makes the split with exactly the smallest bottleneck of the layers in forward order, time[layer] per micro-batch, if
// stage s takes its time / speeds[s]. Among optimal splits, returns the split whose cuts come first.
StageSplit split_bottleneck(const LayerGraph& graph, const std::vector<double>& speeds, const std::vector<Ns>& time,
                            const CutPlaces& places = {});

inline StageSplit split_bottleneck(const LayerGraph& graph, int stages, const std::vector<Ns>& time) {
    return split_bottleneck(graph, std::vector<double>(static_cast<std::size_t>(stages), 1), time);
}

// Makes the split for devices that hold several stages, balanced by device (balance_devices).
StageSplit split_balanced(const LayerGraph& graph, const std::vector<Ns>& time, const StageHolders& holders,
                          const CutPlaces& places = {});

// A tensor that crosses from a stage to another.
struct BoundaryTensor {
    int layer;  // the layer that makes it
    // The readers of the tensor, ascending: in the receiving stage, or in a later stage if the receiving stage is
    // empty.
    std::vector<int> readers;
    // The readers' gradients travel as one sum if the readers are one group, or if their groups begin the sum.
    // Otherwise each gradient travels alone, and each reader is a group.
    bool gradients_summed;
};

struct Boundary {
    int from, to;                         // stages
    std::vector<BoundaryTensor> tensors;  // ascending layer
};

// Returns the reader whose gradient begins the sum of a tensor's gradient. `readers` are all readers of the tensor.
int first_summed(const StageSplit& split, const std::vector<int>& readers);

// Returns all pairs of stages between which tensors flow, ordered by (from, to).
std::vector<Boundary> boundaries_of(const LayerGraph& graph, const StageSplit& split);

}  // namespace pw
