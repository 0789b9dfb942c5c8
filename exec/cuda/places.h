// The places of a run's devices: their ranks, and their GPUs there.
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
    int multiprocessors = 0;  // of the seat, set only if there are several ranks
};

// Returns the places of all devices, by number. Ranks of one host that see the same GPUs divide them as a single
// process would spread all their devices. `run.gpus` counts the GPUs that a device's own rank sees. All ranks call it
// together. Throws Error (BadInput) if two ranks would use one GPU, which NCCL does not allow.
std::vector<Place> places_of(const RunPlan& plan, JobGpus& job);

}  // namespace pw::cuda
