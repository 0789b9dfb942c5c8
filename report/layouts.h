// The stages of a split in the words of other frameworks.
#pragma once

#include "job/setup/setup.h"
#include "workloads/models/layer_graph.h"
#include "workloads/stages/stage_split.h"

#include <string>
#include <vector>

namespace pw {

// Returns stages as Megatron-LM's --pipeline-model-parallel-layout writes them (workloads/stages/layout_notation.h).
// There is a layout for a decoder, for a transformer on a cluster, and for a layer graph with an embedding, whose
// stages are ranges of the forward order and hold whole blocks. Else the layout is empty.
std::string megatron_layout(const WorkloadConfig& workload, const LayerGraph& graph, const StageSplit& split);

// Stages as torch.distributed.pipelining takes them, by the names of the model's own modules: the names in torchvision
// or Hugging Face for built-in models.
struct SplitSpec {
    std::string text;                     // empty: there is none
    std::vector<std::string> inside;      // first layers of stages that begin inside a block
    std::vector<std::string> no_modules;  // layers that are no module of the model, so that there is no text
};
// Returns an empty spec where a stage is no range of the forward order, and for files whose layers are numbers.
SplitSpec pytorch_split_spec(const WorkloadConfig& workload, const LayerGraph& graph, const StageSplit& split);

}  // namespace pw
