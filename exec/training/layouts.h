// The layouts say where the bytes of all stages lie in their blocks.
#pragma once

#include "job/job.h"
#include "workloads/stages/stage_layout.h"

#include <vector>

namespace pw {

// A table that several layers have a copy of, at the start of their blocks: an embedding, and the layers tied to it.
struct SharedTable {
    std::vector<int> layers;   // the embedding first
    std::vector<int> devices;  // those that hold one of the layers, ascending
    std::vector<int> nearest;  // for each of `devices`: the first of the layers that it holds
    Bytes bytes;
};

// Returns the tables that are shared; `bytes` is by layer. It throws Error (RunFailed) when copies of a table differ in
// size.
std::vector<SharedTable> shared_tables(const Job& job, const std::vector<LayerBytes>& bytes);

// The layouts are built once, when all devices are prepared.
struct Layouts {
    std::vector<StageLayout> full, last;  // by stage; `last` for a smaller last micro-batch, where there is one
    std::vector<SharedTable> tables;
};

}  // namespace pw
