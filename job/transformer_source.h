// The cost source of transformers: their layers, split, cluster and groups of devices, from shapes
// (CostSource::Shapes). Each function is a member of the row (cost_source.h).
#pragma once

#include "job/setup/setup.h"
#include "schedules/plan/plan.h"
#include "workloads/costs/costs.h"
#include "workloads/costs/slices.h"

namespace pw {

Profile profile_by_shapes(const Setup& setup, const Model& model);
Model model_by_shapes(const Setup& setup);
StageSplit split_by_blocks(const Setup& setup, const Model& model);
// Makes the split whose stages have these numbers of blocks. The first stage also has the embedding, the last stage the
// head.
StageSplit split_of_blocks(const LayerGraph& graph, const std::vector<int>& blocks);
ClusterFacts pipeline_cluster_of(const Setup& setup);
// Returns where the sequences of a transformer are cut: at multiples of the tokens of which the tensor and context
// ranks of every stage have equally many, if slices are of equal time.
SliceEnds slice_ends_by_shapes(const Setup& setup, int slices);
void add_groups(Costs& costs, const Setup& setup, const StageSplit& split, const Shape& shape);

}  // namespace pw
