// Where the bytes of all stages lie in their blocks.
#pragma once

#include "job/job.h"
#include "workloads/stages/stage_layout.h"

#include <vector>

namespace pw {

// A table that several layers have a copy of, at the start of their blocks: an embedding's, and those tied to it.
struct SharedTable {
    std::vector<int> layers;   // the embedding first
    std::vector<int> devices;  // that hold one of them, ascending
    std::vector<int> nearest;  // by device: the first of the layers that it holds
    Bytes bytes;
};

// `bytes` by layer. Throws Error (RunFailed) when copies of a table differ in size.
std::vector<SharedTable> shared_tables(const Job& job, const std::vector<LayerBytes>& bytes);

// Built once, when all devices are prepared.
struct Layouts {
    std::vector<StageLayout> full, last;  // by stage; `last`: of a smaller last micro-batch, where there is one
    std::vector<SharedTable> tables;
};

}  // namespace pw
