// The work of a step as one CUDA graph: it is captured from the streams while a step is queued, and then launched
// as a whole.
#pragma once

#include "exec/cuda/device/events.h"

#include <vector>

namespace pw::cuda {

class StepGraph {
public:
    // All streams are on the current GPU. The graph is launched on the first one.
    explicit StepGraph(std::vector<cudaStream_t> streams);
    ~StepGraph();
    StepGraph(const StepGraph&) = delete;
    StepGraph& operator=(const StepGraph&) = delete;

    // Between begin() and end() all work put on the streams goes into the graph instead. Any thread may put work
    // there, one at a time.
    void begin();
    void end();
    bool is_made() const { return launchable_ != nullptr; }
    void launch();
    const Event& finished() const { return finished_; }  // passed at the end of the last launch

private:
    std::vector<cudaStream_t> streams_;
    Event fork_, finished_;
    std::vector<Event> joins_;
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t launchable_ = nullptr;
};

}  // namespace pw::cuda
