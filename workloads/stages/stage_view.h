// A stage of a split: its layers, and the tensors and gradients that cross its cuts.
#pragma once

#include "workloads/stages/edge_offsets.h"
#include "workloads/stages/fan_outs.h"

#include <vector>

namespace pw {

// A gradient that a stage sends: its home is the landing buffer, its summands are the stage's own.
struct SentGradient {
    Slot home;
    std::vector<Contribution> parts;
    int producer;  // the layer that made the tensor
};

// The boundaries of a split, which its stages share.
struct SplitBoundaries {
    SplitBoundaries(const LayerGraph& graph, const StageSplit& split, const std::vector<LayerBytes>& bytes);

    std::vector<Boundary> all;
    std::vector<EdgeOffsets> offsets;  // by boundary
    struct Crossing {
        std::size_t boundary, tensor;  // in `all`, and in the boundary's tensors
    };
    std::vector<std::vector<Crossing>> crossings;  // by layer: the cuts that its tensor crosses, nearest stage first
};

// The view refers to the arguments of its constructor.
struct StageView {
    StageView(const LayerGraph& graph, const StageSplit& split, int stage, const std::vector<LayerBytes>& bytes,
              const SplitBoundaries& of_split);

    bool local(int layer) const { return split.stage_of[layer] == stage; }
    LayerKind kind(int layer) const { return graph[layer].kind; }
    // Returns the position of a layer among the stage's layers.
    int step(int layer) const;
    Bytes largest_scratch() const;
    // Returns whether an input of an add is a batch norm that runs with the add.
    bool joins(int norm, int add) const;

    // Returns where a tensor of another stage arrives here.
    Slot inbox(int producer) const;
    // Returns the landing slots that a tensor made here has on other stages, nearest stage first.
    std::vector<Slot> landing_slots(int layer) const;

    // Returns the summands of the gradient of the tensor that `layer` makes, in the order of the sum. Empty if the
    // gradient is not needed.
    std::vector<Contribution> contributions_of(int layer) const;
    std::vector<SentGradient> sent_gradients() const;

    const LayerGraph& graph;
    const StageSplit& split;
    const std::vector<LayerBytes>& bytes;  // by layer
    int stage;
    const std::vector<int>& layers;  // of the stage, ascending
    const std::vector<Boundary>& boundaries;
    const std::vector<EdgeOffsets>& offsets;  // by boundary
    const std::vector<std::vector<SplitBoundaries::Crossing>>& crossings;
};

// Returns a slot at the end of a region of a stage, and adds the slot to the region's size.
inline Slot slot_at_end(Bytes& region_size, Region region, Bytes bytes) {
    const Slot slot{region, region_size, -1};
    region_size += bytes;
    return slot;
}

}  // namespace pw
