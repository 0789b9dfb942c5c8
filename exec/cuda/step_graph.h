// A step's work as one CUDA graph: it is taken from the streams while a step is queued, and launched as a whole
// afterwards.
#pragma once

#include "exec/cuda/events.h"

#include <vector>

namespace pw::cuda {

class StepGraph {
public:
    // All streams are on the current GPU. The first is the one that launches.
    explicit StepGraph(std::vector<cudaStream_t> streams);
    ~StepGraph();
    StepGraph(const StepGraph&) = delete;
    StepGraph& operator=(const StepGraph&) = delete;

    // Between begin() and end(), whatever is put on the streams goes into the graph instead: any thread may do so, one
    // at a time.
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
