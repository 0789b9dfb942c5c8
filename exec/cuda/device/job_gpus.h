// The state that the devices of one job share.
#pragma once

#include "exec/cuda/device/check.h"
#include "exec/cuda/device/convolution_choices.h"

#include <map>
#include <mutex>
#include <vector>

namespace pw::cuda {

// The division of a GPU's multiprocessors into groups.
struct SplitGpu {
    CUdevice device = 0;
    unsigned multiprocessors = 0;       // of the GPU
    std::vector<CUdevResource> groups;  // of kGroup multiprocessors each
};

struct JobGpus {
    // Splits the GPU at the first call. A share can only have groups of the same split, so that a GPU is split once
    // per job.
    const SplitGpu& split(int gpu);
    // Returns the number of groups into which the GPU can be divided.
    int groups_on(int gpu) { return static_cast<int>(split(gpu).groups.size()); }

    ConvolutionChoices convolutions;

private:
    std::mutex mutex_;
    std::map<int, SplitGpu> splits_;
};

}  // namespace pw::cuda
