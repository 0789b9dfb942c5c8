#include "exec/cuda/device/captured_work.h"

#include "exec/cuda/device/check.h"

namespace pw::cuda {

// Relaxed: other threads may reserve memory or load code meanwhile.
void CapturedWork::begin(cudaStream_t stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
}

void CapturedWork::end(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    graph_.reset(graph);
    cudaGraphExec_t launchable = nullptr;
    check(cudaGraphInstantiate(&launchable, graph, 0), "cudaGraphInstantiate");
    launchable_.reset(launchable);
}

void CapturedWork::launch(cudaStream_t stream) const {
    check(cudaGraphLaunch(launchable_.get(), stream), "cudaGraphLaunch");
}

}  // namespace pw::cuda
