// The stages of a split in the words of other frameworks.
#pragma once

#include "job/config/config.h"
#include "workloads/models/layer_graph.h"
#include "workloads/stages/stage_split.h"

#include <string>

namespace pw {

// Returns stages as Megatron-LM's --pipeline-model-parallel-layout writes them: E the embedding, t a transformer layer,
// L the loss, with the last norm and the output layer; stages split by '|'. There is a layout for a decoder, for a
// transformer on a cluster, and for a layer graph with an embedding whose stages hold whole blocks. Which layer is
// what, `part` says, else its name; all others of a layer graph are t, those of one block ("h.3.attn", "h.3.mlp")
// together. The last stage has the L of a graph without one. Where a stage would be empty, or is no range of the
// forward order, there is none.
std::string megatron_layout(const WorkloadConfig& workload, const LayerGraph& graph, const StageSplit& split);
// Returns stages as torch.distributed.pipelining takes them: empty likewise, and when a stage does not begin with a
// module.
std::string pytorch_split_spec(const WorkloadConfig& workload, const LayerGraph& graph, const StageSplit& split);

}  // namespace pw
