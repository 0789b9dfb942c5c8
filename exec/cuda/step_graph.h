// The work of a step as a CUDA graph: it is captured from the streams while a step is queued, and then launched
// as a whole.
#pragma once

#include "exec/cuda/device/captured_work.h"
#include "exec/cuda/device/events.h"

#include <vector>

namespace pw::cuda {

class StepGraph {
public:
    // All streams are on the current GPU. The graph is launched on the first stream.
    explicit StepGraph(std::vector<cudaStream_t> streams);

    // Between begin() and end() all work put on the streams goes into the graph instead. Any thread may put work
    // there, one thread at a time.
    void begin();
    void end();
    bool is_made() const { return work_.is_made(); }
    void launch();
    const Event& finished() const { return finished_; }  // passed at the end of the last launch

private:
    std::vector<cudaStream_t> streams_;
    Event fork_, finished_;
    std::vector<Event> joins_;
    CapturedWork work_;
};

}  // namespace pw::cuda
