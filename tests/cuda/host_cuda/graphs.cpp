// Captures and their graphs.
#include "tests/cuda/host_cuda/streams.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace host_cuda {

struct Node {
    std::function<void()> work;
    CUevent_st* event;  // if there is no work: the event that each launch records
    std::vector<const Node*> after{};
    int number = -1;  // its index in the graph
};

// The capture of one stream. Only one thread at a time may access a graph until its capture ends (Entry): locks
// would order threads that the caller has to order.
struct Lane {
    cudaError_t add(Node node);
    cudaError_t fail(cudaError_t error);

    CUgraph_st* graph;
    CUstream_st* stream;  // null if it has been destroyed
    int device;
    std::deque<Node> nodes{};
    std::vector<const Node*> after{};  // the nodes that the next node follows
};

}  // namespace host_cuda

using namespace host_cuda;

// A graph, from the beginning of its capture. It exists as long as the process, since events refer to it.
struct CUgraph_st {
    enum State { kCaptures, kInvalid, kEnded, kDestroyed };

    explicit CUgraph_st(cudaStreamCaptureMode capture_mode) : mode(capture_mode) {}
    State state() const { return state_.load(std::memory_order_relaxed); }
    bool is_open() const { return state() == kCaptures || state() == kInvalid; }
    void become(State state) { state_.store(state, std::memory_order_relaxed); }
    void invalidate() {
        State expected = kCaptures;
        state_.compare_exchange_strong(expected, kInvalid, std::memory_order_relaxed);
    }
    Lane* add_lane(CUstream_st& stream) {
        std::lock_guard lock(joining_);
        return &lanes.emplace_back(Lane{this, &stream, stream.device});
    }

    const cudaStreamCaptureMode mode;
    const std::thread::id thread = std::this_thread::get_id();
    std::deque<Lane> lanes;  // the first one is of the stream that began the capture
    int nodes = 0;           // set when the capture has ended
    std::atomic<bool> is_entered{false};

private:
    std::mutex joining_;
    std::atomic<State> state_{kCaptures};
};

struct CUgraphExec_st {
    struct Launch {
        explicit Launch(int nodes) : done(std::make_unique<Signal[]>(nodes)) {}
        Signal begun, ended;
        std::unique_ptr<Signal[]> done;  // by node
    };

    CUgraph_st& graph;
    std::deque<CUstream_st> streams{};     // by lane
    std::forward_list<Launch> launches{};  // newest first
    bool destroyed = false;
};

namespace {

// A call on a capturing stream. A concurrent call of another thread spoils the graph, which is not synchronised.
// The call is slow, so that two calls without an order do overlap.
class Entry {
public:
    explicit Entry(CUgraph_st& graph)
        : graph_(graph), alone_(!graph.is_entered.exchange(true, std::memory_order_relaxed)) {
        if (alone_)
            std::this_thread::sleep_for(std::chrono::microseconds(1));
        else
            graph.invalidate();
    }
    ~Entry() {
        if (alone_)
            graph_.is_entered.store(false, std::memory_order_relaxed);
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

private:
    CUgraph_st& graph_;
    const bool alone_;
};

struct GraphRegistry {
    std::mutex mutex;
    std::deque<CUgraph_st> graphs;
    std::deque<CUgraphExec_st> executables;
    std::atomic<int> strict{0};  // the number of captures that are not relaxed and have not ended
};

GraphRegistry& graph_registry() {
    static auto* all = new GraphRegistry;
    return *all;
}

// Numbers the nodes; returns false if the stream that began does not follow all of them.
bool close_graph(CUgraph_st& graph) {
    for (Lane& lane : graph.lanes)
        for (Node& node : lane.nodes)
            node.number = graph.nodes++;
    std::vector<bool> reached(graph.nodes);
    std::vector<const Node*> open = graph.lanes.front().after;
    while (!open.empty()) {
        const Node* node = open.back();
        open.pop_back();
        if (!reached[node->number])
            open.insert(open.end(), node->after.begin(), node->after.end());
        reached[node->number] = true;
    }
    return std::all_of(reached.begin(), reached.end(), [](bool yes) { return yes; });
}

void launch_node(CUstream_st& stream, const Node& node, CUgraphExec_st::Launch& launch) {
    Recording* recording = nullptr;
    if (node.event != nullptr) {
        recording = &node.event->recordings.emplace_front();
        node.event->graph = nullptr;
    }
    const auto run = [&node, &launch, recording] {
        launch.begun.wait();
        for (const Node* before : node.after)
            launch.done[before->number].wait();
        if (recording == nullptr)
            return node.work();
        recording->time = std::chrono::steady_clock::now();
        recording->done.set();
    };
    stream.push(run, &launch.done[node.number]);
}

}  // namespace

cudaError_t Lane::add(Node node) {
    if (graph->state() != CUgraph_st::kCaptures)
        return cudaErrorStreamCaptureInvalidated;
    node.after = after;
    nodes.push_back(std::move(node));
    after = {&nodes.back()};
    return cudaSuccess;
}

cudaError_t Lane::fail(cudaError_t error) {
    graph->invalidate();
    return error;
}

cudaError_t host_cuda::refuse_captured(const CUevent_st& event) {
    if (event.graph == nullptr)
        return cudaSuccess;
    event.graph->invalidate();
    return cudaErrorCapturedEvent;
}

cudaError_t host_cuda::check_unsafe_call() {
    if (graph_registry().strict.load(std::memory_order_relaxed) == 0)
        return cudaSuccess;
    cudaError_t error = cudaSuccess;
    std::lock_guard lock(graph_registry().mutex);
    for (CUgraph_st& graph : graph_registry().graphs) {
        const bool is_mine = graph.thread == std::this_thread::get_id();
        if (graph.is_open() && (graph.mode == cudaStreamCaptureModeGlobal ||
                                (graph.mode == cudaStreamCaptureModeThreadLocal && is_mine))) {
            graph.invalidate();
            error = cudaErrorStreamCaptureUnsupported;
        }
    }
    return error;
}

cudaError_t CUstream_st::push_or_capture(std::function<void()> work, Signal* then) {
    std::lock_guard lock(pushing_);
    if (closed_)
        return cudaErrorInvalidResourceHandle;
    if (lane_ != nullptr) {
        const Entry entry(*lane_->graph);
        return then != nullptr ? cudaErrorNotSupported : lane_->add({std::move(work), nullptr});
    }
    append(new Item{std::move(work), then, {}, {}});
    return cudaSuccess;
}

// A captured event makes the stream part of the capture.
cudaError_t CUstream_st::wait_for(const CUevent_st& event) {
    const bool is_open = event.graph != nullptr && event.graph->is_open();
    std::unique_lock lock(pushing_);
    if (lane_ != nullptr && event.graph != lane_->graph)
        return lane_->fail(is_open ? cudaErrorStreamCaptureMerge : cudaErrorStreamCaptureIsolation);
    if (event.graph == nullptr) {
        lock.unlock();
        if (event.recordings.empty())
            return cudaSuccess;
        return enqueue(this, [&newest = event.recordings.front()] { newest.done.wait(); });
    }
    const Entry entry(*event.graph);
    if (event.graph->state() != CUgraph_st::kCaptures)
        return is_open ? cudaErrorStreamCaptureInvalidated : cudaErrorCapturedEvent;
    if (lane_ == nullptr)
        lane_ = event.graph->add_lane(*this);
    for (const Node* node : event.after)
        if (std::find(lane_->after.begin(), lane_->after.end(), node) == lane_->after.end())
            lane_->after.push_back(node);
    return cudaSuccess;
}

cudaError_t CUstream_st::begin_capture(cudaStreamCaptureMode mode) {
    std::lock_guard lock(pushing_);
    if (lane_ != nullptr || closed_)
        return lane_ != nullptr ? cudaErrorIllegalState : cudaErrorInvalidResourceHandle;
    std::lock_guard registry_lock(graph_registry().mutex);
    graph_registry().strict += mode != cudaStreamCaptureModeRelaxed;
    lane_ = graph_registry().graphs.emplace_back(mode).add_lane(*this);
    return cudaSuccess;
}

void CUstream_st::release(CUgraph_st& graph) {
    graph_registry().strict -= graph.mode != cudaStreamCaptureModeRelaxed;
    for (const Lane& lane : graph.lanes)
        if (lane.stream != nullptr) {
            std::lock_guard lock(lane.stream->pushing_);
            lane.stream->lane_ = nullptr;
        }
}

cudaError_t CUstream_st::end_capture(cudaGraph_t* graph) {
    std::unique_lock lock(pushing_);
    Lane* lane = lane_;
    lock.unlock();
    *graph = nullptr;
    if (lane == nullptr)
        return cudaErrorIllegalState;
    CUgraph_st& ended = *lane->graph;
    const Entry entry(ended);
    if (lane != &ended.lanes.front())
        return cudaErrorStreamCaptureUnmatched;
    if (ended.mode != cudaStreamCaptureModeRelaxed && ended.thread != std::this_thread::get_id())
        return cudaErrorStreamCaptureWrongThread;
    const bool is_valid = ended.state() == CUgraph_st::kCaptures, is_joined = close_graph(ended);
    release(ended);
    ended.become(is_valid && is_joined ? CUgraph_st::kEnded : CUgraph_st::kDestroyed);
    if (!is_valid || !is_joined)
        return is_valid ? cudaErrorStreamCaptureUnjoined : cudaErrorStreamCaptureInvalidated;
    *graph = &ended;
    return cudaSuccess;
}

cudaError_t CUstream_st::capture_record(CUevent_st& event, bool external) {
    std::lock_guard lock(pushing_);
    const Entry entry(*lane_->graph);
    if (external)
        return lane_->add({nullptr, &event});
    if (lane_->graph->state() != CUgraph_st::kCaptures)
        return cudaErrorStreamCaptureInvalidated;
    event.graph = lane_->graph;
    event.after = lane_->after;
    return cudaSuccess;
}

cudaStreamCaptureStatus CUstream_st::capture_status() {
    std::lock_guard lock(pushing_);
    if (lane_ == nullptr)
        return cudaStreamCaptureStatusNone;
    return lane_->graph->state() == CUgraph_st::kCaptures ? cudaStreamCaptureStatusActive
                                                          : cudaStreamCaptureStatusInvalidated;
}

cudaError_t CUstream_st::refuse_capture() {
    std::lock_guard lock(pushing_);
    return lane_ == nullptr ? cudaSuccess : lane_->fail(cudaErrorStreamCaptureUnsupported);
}

void CUstream_st::leave_capture() {
    std::unique_lock lock(pushing_);
    Lane* lane = std::exchange(lane_, nullptr);
    lock.unlock();
    if (lane == nullptr)
        return;
    CUgraph_st& graph = *lane->graph;
    lane->stream = nullptr;
    graph.invalidate();
    if (lane == &graph.lanes.front()) {  // only this stream can end it
        release(graph);
        graph.become(CUgraph_st::kDestroyed);
    }
}

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    if (stream == nullptr)
        return result(cudaErrorStreamCaptureUnsupported);
    return result(stream->begin_capture(mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
    return result(stream == nullptr ? cudaErrorIllegalState : stream->end_capture(pGraph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus* pCaptureStatus) {
    *pCaptureStatus = stream == nullptr ? cudaStreamCaptureStatusNone : stream->capture_status();
    return result(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph, unsigned long long flags) {
    if (graph == nullptr || graph->state() != CUgraph_st::kEnded || flags != 0)
        return result(cudaErrorInvalidValue);
    std::lock_guard lock(graph_registry().mutex);
    CUgraphExec_st& made = graph_registry().executables.emplace_back(CUgraphExec_st{*graph});
    for (const Lane& lane : graph->lanes)
        made.streams.emplace_back(lane.device);
    *pGraphExec = &made;
    return result(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
    if (graphExec == nullptr || graphExec->destroyed)
        return result(cudaErrorInvalidValue);
    const CUgraph_st& graph = graphExec->graph;
    auto& launches = graphExec->launches;
    CUgraphExec_st::Launch* before = launches.empty() ? nullptr : &launches.front();
    CUgraphExec_st::Launch& launch = launches.emplace_front(graph.nodes);
    const auto run = [before, &launch, &graph] {
        if (before != nullptr)
            before->ended.wait();
        launch.begun.set();
        for (const Lane& lane : graph.lanes)
            if (!lane.nodes.empty())
                launch.done[lane.nodes.back().number].wait();
    };
    const cudaError_t error = enqueue(stream, run, &launch.ended);
    if (error != cudaSuccess) {
        launches.pop_front();
        return result(error);
    }
    for (std::size_t i = 0; i < graph.lanes.size(); ++i)
        for (const Node& node : graph.lanes[i].nodes)
            launch_node(graphExec->streams[i], node, launch);
    return result(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    if (graph == nullptr || graph->state() != CUgraph_st::kEnded)
        return result(cudaErrorInvalidValue);
    graph->become(CUgraph_st::kDestroyed);
    return result(cudaSuccess);
}

// Launches continue.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
    if (graphExec == nullptr || graphExec->destroyed)
        return result(cudaErrorInvalidValue);
    graphExec->destroyed = true;
    for (CUstream_st& stream : graphExec->streams)
        stream.retire();
    return result(cudaSuccess);
}

}  // extern "C"
