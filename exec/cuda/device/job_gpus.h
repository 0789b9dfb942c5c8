// What the devices of one job share.
#pragma once

#include "exec/cuda/device/check.h"
#include "exec/cuda/device/convolution_ways.h"

#include <map>
#include <mutex>
#include <vector>

namespace pw::cuda {

// The multiprocessors of a GPU in groups of kGroup.
struct SplitGpu {
    CUdevice device = 0;
    unsigned multiprocessors = 0;  // of the GPU
    std::vector<CUdevResource> groups;
};

struct JobGpus {
    // A share joins groups of one split only: a GPU is split once in a job, by the first call.
    const SplitGpu& split(int gpu);
    int groups_on(int gpu) { return static_cast<int>(split(gpu).groups.size()); }  // that can be shared out

    ConvolutionWays ways;

private:
    std::mutex mutex_;
    std::map<int, SplitGpu> splits_;
};

}  // namespace pw::cuda
