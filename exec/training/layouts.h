// The layouts of all stages: the offsets of their layers in the stages' blocks.
#pragma once

#include "job/job.h"
#include "workloads/stages/stage_layout.h"

#include <vector>

namespace pw {

// A table of which several layers have a copy, at the start of their blocks: an embedding and the layers tied to it.
struct SharedTable {
    std::vector<int> layers;   // the embedding first
    std::vector<int> devices;  // the holders of the layers, ascending
    std::vector<int> nearest;  // for each of `devices`: the first of the layers on it
    Bytes bytes;
};

// Returns the shared tables that are trained. `bytes` is by layer. Throws Error (RunFailed) if copies of a table differ
// in size.
std::vector<SharedTable> shared_tables(const Job& job, const std::vector<LayerBytes>& bytes);

// Returns whether the holders of a stage shard the optimizer's states.
bool is_sharded(const Job& job, int stage);
// Returns whether the gradients of a stage are summed in buckets.
bool may_sum_in_buckets(const Job& job, int stage);
// Returns by layer the device that measures its gradient: the first holder of the stage or, if the stage is
// sharded, the device in whose part the layer begins.
std::vector<int> measurers_of(const Job& job, const std::vector<StageLayout>& layouts);

// The layouts are built once, when all devices are prepared.
struct Layouts {
    std::vector<StageLayout> full, last;  // by stage (`last` is for a smaller last micro-batch, if it exists)
    std::vector<LayerBytes> bytes;        // by layer, for a full micro-batch
    std::vector<SharedTable> tables;
    std::vector<int> measurers;  // by layer
};

}  // namespace pw
