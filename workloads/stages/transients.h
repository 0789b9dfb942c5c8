// Tensors that a pass of a stage needs for some of its steps, packed into its workspace.
#pragma once

#include "workloads/stages/stage_layout.h"

#include <vector>

namespace pw {

// A transient is a tensor of the workspace, needed from step `first` to step `last` of a pass.
struct Transient {
    Bytes bytes;
    int first, last;
    Slot* slot;
};

// Packs them by first fit in order of birth: sets the slots' offsets and returns the size.
Bytes pack_transients(std::vector<Transient> transients);

}  // namespace pw
