#include "exec/cuda/step_graph.h"

#include <utility>

namespace pw::cuda {

StepGraph::StepGraph(std::vector<cudaStream_t> streams)
    : streams_(std::move(streams)), fork_(Event::Kind::Untimed), finished_(Event::Kind::Untimed) {
    for (std::size_t k = 1; k < streams_.size(); ++k)
        joins_.emplace_back(Event::Kind::Untimed);
}

void StepGraph::begin() {
    CapturedWork::begin(streams_.front());
    fork_.record(streams_.front());
    for (std::size_t k = 1; k < streams_.size(); ++k)
        fork_.block(streams_[k]);
}

void StepGraph::end() {
    for (std::size_t k = 1; k < streams_.size(); ++k) {
        joins_[k - 1].record(streams_[k]);
        joins_[k - 1].block(streams_.front());
    }
    work_.end(streams_.front());
}

void StepGraph::launch() {
    work_.launch(streams_.front());
    finished_.record(streams_.front());
}

}  // namespace pw::cuda
