// A step's work as one CUDA graph: taken from the streams while a step is queued, launched as a whole after.
#pragma once

#include "exec/cuda/events.h"

#include <vector>

namespace pw::cuda {

class StepGraph {
public:
    // All on the current GPU. The first stream is the one that launches.
    explicit StepGraph(std::vector<cudaStream_t> streams);
    ~StepGraph();
    StepGraph(const StepGraph&) = delete;
    StepGraph& operator=(const StepGraph&) = delete;

    // Between the two, whatever is put on the streams goes into the graph instead: by any thread, one at a time.
    void begin();
    void end();
    bool is_made() const { return launchable_ != nullptr; }
    void launch();
    const Event& finished() const { return finished_; }  // of the last launch

private:
    std::vector<cudaStream_t> streams_;
    Event fork_, finished_;
    std::vector<Event> joins_;
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t launchable_ = nullptr;
};

}  // namespace pw::cuda
