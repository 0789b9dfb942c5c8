// A device of a run on GPUs: the work that its thread queues for every task, and its waits for other devices.
#include "exec/cuda/training.h"

#include <nvtx3/nvToolsExt.h>
#include "schedules/plan/plan_graph.h"

#include <algorithm>

namespace pw::cuda {

namespace {

// Shows the task's name in the thread's row of a profiler.
class Range {
public:
    explicit Range(const std::string& name) { nvtxRangePushA(name.c_str()); }
    ~Range() { nvtxRangePop(); }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
};

}  // namespace

class CudaDevice::CaptureScope {
public:
    explicit CaptureScope(CudaDevice& device) : capture_lock_(device.capture_lock_) {
        capture_lock_ = device.work_.capture_lock();
    }
    ~CaptureScope() { capture_lock_ = {}; }
    CaptureScope(const CaptureScope&) = delete;
    CaptureScope& operator=(const CaptureScope&) = delete;

private:
    std::unique_lock<std::mutex>& capture_lock_;
};

Training& CudaDevice::work_of(CudaTraining& work) { return work; }

std::shared_ptr<const Kernels> CudaDevice::open() {
    const Setup& setup = work_.job.setup;
    kernels_ = std::make_shared<CudaKernels>(work_.places[device_].seat, setup.training.precision,
                                             setup.run.deterministic, work_.shared);
    return kernels_;
}

void CudaDevice::begin() {
    TrainingDevice::begin();
    const PlanGraph& graph = work_.plan.graph;
    const auto length = static_cast<int>(work_.job.plan.order[device_].size());
    for (int position = 0; position < length; ++position) {
        const int node = graph.node(device_, position);
        CudaTraining::NodeEvents& own = work_.events[node];
        const bool starts_elsewhere = is_recv(graph.task(node).op) && !work_.crosses(node);  // it starts with its SEND
        own.start.emplace(starts_elsewhere ? Event::Kind::Untimed : Event::Kind::Timed);
        own.end.emplace(Event::Kind::Timed);
        if (moves_data(graph.task(node).op))
            own.posted.emplace(Event::Kind::Untimed);
        if (work_.makes_step_graphs())
            own.done.emplace(Event::Kind::Untimed);
        for (int round = 0; work_.plan.barriers->begins(node) && round < kRounds; ++round)
            own.arrivals.emplace_back(Event::Kind::Untimed);
        work_.names[node] = print(graph.task(node));
    }
    if (has_copies(work_.job.plan.order[device_]))
        copies_.emplace(*this);
}

void CudaDevice::begin_step(int step) {
    TrainingDevice::begin_step(step);
    if (step == 0)
        work_.device_has_room(device_);
}

void CudaDevice::wait_at_barrier(const Task& task, int node) {
    if (!work_.queues())
        return;
    const CaptureScope scope(*this);
    TrainingDevice::wait_at_barrier(task, node);
}

void CudaDevice::arrive(int node, int round) {
    const cudaStream_t stream = device().stream();
    work_.events[node].arrivals[round].record(stream);
    wait_for_others(node);
    for (const int other : work_.plan.barriers->barrier(node)->first)
        if (other != node && work_.plan.is_here(work_.plan.graph.device_of(other)))
            work_.events[other].arrivals[round].block(stream);
}

void CudaDevice::wait_for_others(int node) {
    const bool captures = capture_lock_.owns_lock();
    if (captures)
        capture_lock_.unlock();  // the other devices need it before they arrive
    work_.plan.barriers->arrive(node, work_.synchronise_ranks());
    if (captures)
        capture_lock_.lock();
}

bool CudaDevice::reads(int device) const { return work_.places[device].gpu == work_.places[device_].gpu; }

bool CudaDevice::reduces(int stage) const { return work_.reduces(stage); }

// One thread queues the work for all devices of the barrier on this rank, while they wait.
template <class Act>
void CudaDevice::as_one(int node, Act act) {
    const Barrier& barrier = *work_.plan.barriers->barrier(node);
    if (!work_.is_here(barrier))
        return work_.plan.barriers->arrive(
            node, [&](const Barrier&, const std::vector<int>& others, int tag) { act(others, tag); });
    wait_for_others(node);
    if (barrier.first.front() == node)
        act(std::vector<int>(), 0);
    wait_for_others(node);
}

void CudaDevice::fetch(int node) {
    const Barrier& barrier = *work_.plan.barriers->barrier(node);
    if (work_.is_on_one_gpu(barrier))
        return;
    as_one(node, [&](const std::vector<int>& others, int tag) { work_.fetch(barrier, others, tag); });
}

void CudaDevice::reduce(int node) {
    const Barrier& barrier = *work_.plan.barriers->barrier(node);
    if (std::any_of(barrier.stages.begin(), barrier.stages.end(), [&](int stage) { return reduces(stage); }))
        as_one(node, [&](const std::vector<int>&, int) { work_.reduce(barrier); });
}

void CudaDevice::run(const Task& task, int node) {
    if (!work_.queues())
        return;
    const Range range(work_.names[node]);
    const CaptureScope scope(*this);
    const cudaStream_t stream = device().stream();
    work_.call_for(node, "queues", [&] {
        work_.record_start(node, stream);
        if (work_.makes_task_graph(task))
            run_as_graph(task, node);
        else
            TrainingDevice::run(task, node);
        work_.record_end(node, stream);
    });
}

void CudaDevice::run_as_graph(const Task& task, int node) {
    const cudaStream_t stream = device().stream();
    CapturedWork& graph = graphs_[node];
    if (graph.is_made()) {
        note_gradients(task);
    } else {
        CapturedWork::begin(stream);
        TrainingDevice::run(task, node);
        graph.end(stream);
    }
    graph.launch(stream);
}

void CudaDevice::wait_for_transfer(int node) {
    if (!work_.queues())
        return;
    const CaptureScope scope(*this);
    work_.events[node].awaited().block(device().stream());
}

void CudaDevice::about_to_post(int transfer, int earlier) {
    if (!work_.queues())
        return;
    const CaptureScope scope(*this);
    const cudaStream_t stream = device().stream();
    if (earlier >= 0)
        work_.events[earlier].awaited().block(stream);
    work_.events[transfer].posted->record(stream);
}

CudaDevice::Copies::Copies(CudaDevice& device)
    : HostCopies(device.work_.plan.graph, device.work_.job.plan.order[device.device_], device.device_,
                 device.work_.job.mode),
      device_(device),
      streams_{device.device().add_stream(), device.device().add_stream()} {}

void CudaDevice::Copies::post(int node) {
    if (!device_.work_.queues())
        return;
    const CaptureScope scope(device_);
    device_.work_.events[node].posted->record(device_.device().stream());
    HostCopies::post(node);
}

// An OFFLOAD waits for its F. A copy back waits for the copy to the host, and for the work that has used its memory
// before.
void CudaDevice::Copies::begin(int node, int lane) {
    const CudaTraining& work = device_.work_;
    const cudaStream_t stream = streams_[static_cast<std::size_t>(lane)];
    work.call_for(node, "queues", [&] {
        work.events[node].posted->block(stream);
        if (returns_to_device(work.plan.graph.task(node).op))
            work.events[work.plan.graph.inputs(node).front()].awaited().block(stream);
        work.record_start(node, stream);
        for (const HostBlocks::Block& block : device_.host_blocks().moved_by(node))
            check(
                cudaMemcpyAsync(block.to, block.from, static_cast<std::size_t>(block.bytes), cudaMemcpyDefault, stream),
                "cudaMemcpyAsync");
        work.record_end(node, stream);
    });
}

void CudaDevice::Copies::wait(int node) {
    if (!device_.work_.queues())
        return;
    const CaptureScope scope(device_);
    device_.work_.events[node].awaited().block(device_.device().stream());
}

void CudaDevice::all_queued() { work_.device_has_queued(); }

void CudaDevice::wait(int node) { work_.wait(node); }

void CudaDevice::all_done() { work_.device_is_done(device_); }

Interval CudaDevice::interval(int node, Interval) { return work_.interval(node); }

}  // namespace pw::cuda
