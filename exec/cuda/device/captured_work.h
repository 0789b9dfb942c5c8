// Work of a stream as a CUDA graph: it is captured while calls put it on the stream, and launched as a whole.
#pragma once

#include "exec/cuda/device/owned.h"

#include <cuda_runtime_api.h>

namespace pw::cuda {

class CapturedWork {
public:
    // From here on all work for the stream, and for streams that follow its events, goes into a graph instead.
    static void begin(cudaStream_t stream);
    void end(cudaStream_t stream);  // the same stream
    bool is_made() const { return launchable_ != nullptr; }
    void launch(cudaStream_t stream) const;

private:
    Owned<cudaGraph_t, cudaGraphDestroy> graph_;
    Owned<cudaGraphExec_t, cudaGraphExecDestroy> launchable_;
};

}  // namespace pw::cuda
