#include "exec/cuda/step_graph.h"

#include <utility>

namespace pw::cuda {

StepGraph::StepGraph(std::vector<cudaStream_t> streams)
    : streams_(std::move(streams)), fork_(Event::Kind::Untimed), finished_(Event::Kind::Untimed) {
    for (std::size_t k = 1; k < streams_.size(); ++k)
        joins_.emplace_back(Event::Kind::Untimed);
}

StepGraph::~StepGraph() {
    if (launchable_ != nullptr)
        (void)cudaGraphExecDestroy(launchable_);
    if (graph_ != nullptr)
        (void)cudaGraphDestroy(graph_);
}

void StepGraph::begin() {
    check(cudaStreamBeginCapture(streams_.front(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    fork_.record(streams_.front());
    for (std::size_t k = 1; k < streams_.size(); ++k)
        fork_.block(streams_[k]);
}

void StepGraph::end() {
    for (std::size_t k = 1; k < streams_.size(); ++k) {
        joins_[k - 1].record(streams_[k]);
        joins_[k - 1].block(streams_.front());
    }
    check(cudaStreamEndCapture(streams_.front(), &graph_), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&launchable_, graph_, 0), "cudaGraphInstantiate");
}

void StepGraph::launch() {
    check(cudaGraphLaunch(launchable_, streams_.front()), "cudaGraphLaunch");
    finished_.record(streams_.front());
}

}  // namespace pw::cuda
