// Layers that share a parameter: a row linear layer that uses an embedding's table.
#pragma once

#include "workloads/stages/stage_split.h"

#include <vector>

namespace pw {

struct Tie {
    int table, reader;  // layers: the embedding, and the row linear
    auto operator<=>(const Tie&) const = default;
};

std::vector<Tie> ties_of(const LayerGraph& graph);  // ascending reader

// A tie joins two stages that share parameters.
struct StageTie {
    int from, to;  // from < to
    Bytes bytes;   // of the gradients of the shared parameters, in plain layout
    auto operator<=>(const StageTie&) const = default;
};

// Returns the ties of stages ordered by (from, to). Ties inside a stage are none.
// `gradient` is the bytes of the gradient of a parameter.
std::vector<StageTie> ties_of(const LayerGraph& graph, const StageSplit& split, Bytes gradient = kFloatBytes);

}  // namespace pw
