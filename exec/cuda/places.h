// Where the devices of a run are: on which rank, on which of its GPUs.
#pragma once

#include "exec/cuda/device/device.h"
#include "exec/engine/device.h"

#include <vector>

namespace pw::cuda {

// A GPU of a run, by its number on its rank.
struct Gpu {
    int rank = 0, number = 0;
    auto operator<=>(const Gpu&) const = default;
};

struct Place {
    Seat seat;
    Gpu gpu;
    int multiprocessors = 0;  // of the seat; known where there are several ranks
};

// Returns the places of all devices, by number. Ranks of one host that see the same GPUs take theirs as one process
// would spread the devices of all of them; `run.gpus` counts the GPUs that a device's own rank sees. All ranks call it
// together. Throws Error (BadInput) where two ranks would use one GPU, which NCCL does not allow.
std::vector<Place> places_of(const RunPlan& plan, JobGpus& job);

}  // namespace pw::cuda
