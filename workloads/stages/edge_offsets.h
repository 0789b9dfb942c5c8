// Where the tensors that cross a cut lie in its two landing buffers.
#pragma once

#include "workloads/stages/stage_layout.h"

#include <vector>

namespace pw {

// These are the offsets of a boundary's tensors in its two landing buffers.
struct EdgeOffsets {
    std::vector<Bytes> forward;                // [tensor]
    std::vector<std::vector<Bytes>> backward;  // [tensor][reader], or [tensor][0] when summed
    Bytes forward_bytes = 0, backward_bytes = 0;
};

// Returns the offsets. `bytes` is by layer.
EdgeOffsets offsets_of(const LayerGraph& graph, const Boundary& boundary, const std::vector<LayerBytes>& bytes);

}  // namespace pw
