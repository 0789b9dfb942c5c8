#include "exec/cuda/training.h"

#include "exec/cuda/backend.h"
#include "exec/cuda/layers/algorithms.h"
#include "workloads/error.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

namespace pw::cuda {

namespace {

// The task's name on the thread's row of a profiler.
class Range {
public:
    explicit Range(const std::string& name) { nvtxRangePushA(name.c_str()); }
    ~Range() { nvtxRangePop(); }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
};

}  // namespace

class CudaDevice::Turn {
public:
    explicit Turn(CudaDevice& device) : turn_(device.turn_) { turn_ = device.work_.turn_to_capture(); }
    ~Turn() { turn_ = {}; }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

private:
    std::unique_lock<std::mutex>& turn_;
};

Training& CudaDevice::work_of(CudaTraining& work) { return work; }

std::shared_ptr<const Kernels> CudaDevice::open() {
    const Config& config = work_.job.config;
    kernels_ = std::make_shared<CudaKernels>(work_.seats[device_], config.run.precision, config.run.deterministic);
    return kernels_;
}

void CudaDevice::begin() {
    TrainingDevice::begin();
    const PlanGraph& graph = work_.plan.graph;
    const auto length = static_cast<int>(work_.job.plan.order[device_].size());
    for (int position = 0; position < length; ++position) {
        const int node = graph.node(device_, position);
        CudaTraining::NodeEvents& own = work_.events[node];
        const bool is_received = is_recv(graph.task(node).op);
        own.start.emplace(is_received ? Event::Kind::Untimed : Event::Kind::Timed);
        own.end.emplace(Event::Kind::Timed);
        if (is_transfer(graph.task(node).op))
            own.posted.emplace(Event::Kind::Untimed);
        if (work_.makes_graphs())
            own.done.emplace(Event::Kind::Untimed);
        for (int round = 0; work_.plan.meetings->begins(node) && round < kRounds; ++round)
            own.met.emplace_back(Event::Kind::Untimed);
        work_.names[node] = print(graph.task(node));
    }
}

void CudaDevice::meet(const Task& task, int node) {
    if (!work_.queues())
        return;
    const Turn turn(*this);
    TrainingDevice::meet(task, node);
}

void CudaDevice::arrive(int node, int round) {
    const cudaStream_t stream = device().stream();
    work_.events[node].met[round].record(stream);
    wait_for_others(node);
    for (const int other : work_.plan.meetings->meeting(node)->first)
        if (other != node)
            work_.events[other].met[round].block(stream);
}

void CudaDevice::wait_for_others(int node) {
    const bool captures = turn_.owns_lock();
    if (captures)
        turn_.unlock();  // they come only when they get theirs
    work_.plan.meetings->arrive(node);
    if (captures)
        turn_.lock();
}

bool CudaDevice::reads(int device) const { return work_.seats[device].gpu == work_.seats[device_].gpu; }

bool CudaDevice::reduces(int stage) const { return work_.reduces(stage); }

// One thread queues it for all devices of the meeting, while they wait.
template <class Act>
void CudaDevice::as_one(int node, Act act) {
    wait_for_others(node);
    if (work_.plan.meetings->meeting(node)->first.front() == node)
        act();
    wait_for_others(node);
}

void CudaDevice::fetch(int node) {
    const Meeting& meeting = *work_.plan.meetings->meeting(node);
    if (work_.is_on_one_gpu(meeting))
        return;
    as_one(node, [&] { work_.fetch(meeting); });
    fetches_.clear();
}

void CudaDevice::reduce(int node) {
    const Meeting& meeting = *work_.plan.meetings->meeting(node);
    if (std::any_of(meeting.stages.begin(), meeting.stages.end(), [&](int stage) { return reduces(stage); }))
        as_one(node, [&] { work_.reduce(meeting); });
}

void CudaDevice::run(const Task& task, int node) {
    if (!work_.queues())
        return;
    const Range range(work_.names[node]);
    const Turn turn(*this);
    const cudaStream_t stream = device().stream();
    work_.call_for(node, "queues", [&] {
        work_.record_start(node, stream);
        TrainingDevice::run(task, node);
        work_.record_end(node, stream);
    });
}

void CudaDevice::wait_for_received(int recv) {
    if (!work_.queues())
        return;
    const Turn turn(*this);
    work_.events[recv].awaited().block(device().stream());
}

void CudaDevice::about_to_post(int transfer, int earlier) {
    if (!work_.queues())
        return;
    const Turn turn(*this);
    const cudaStream_t stream = device().stream();
    if (earlier >= 0)
        work_.events[earlier].awaited().block(stream);
    work_.events[transfer].posted->record(stream);
}

void CudaDevice::all_queued() { work_.device_has_queued(); }

void CudaDevice::wait(int node) { work_.wait(node); }

void CudaDevice::all_done() { work_.device_is_done(device_); }

Interval CudaDevice::interval(int node, Interval) { return work_.interval(node); }

std::unique_lock<std::mutex> CudaTraining::turn_to_capture() {
    return graph_ && queues() ? std::unique_lock(capturing_) : std::unique_lock<std::mutex>();
}

void CudaTraining::record_start(int node, cudaStream_t stream) const {
    const Event& start = *events[node].start;
    if (graph_)
        start.record_each_launch(stream);
    else
        start.record(stream);
}

void CudaTraining::record_end(int node, cudaStream_t stream) const {
    const NodeEvents& own = events[node];
    if (graph_)
        own.end->record_each_launch(stream);
    else
        own.end->record(stream);
    if (own.done)
        own.done->record(stream);
}

CudaTraining::CudaTraining(const RunPlan& the_plan, const RunOptions& options)
    : Training(the_plan, options),
      seats(seats_of(the_plan.job.config, the_plan.job.plan.shape.devices)),
      events(static_cast<std::size_t>(the_plan.graph.size())),
      names(static_cast<std::size_t>(the_plan.graph.size())),
      early_(the_plan.job.config.transfer.early_receive()),
      lanes_(the_plan.graph, the_plan.job.mode) {
    for (int device = 0; device < job.plan.shape.devices; ++device)
        devices_.push_back(std::make_unique<CudaDevice>(*this, device));
    if (!job.config.run.deterministic && knows_precision(job.config, job.profile))
        take_ways(job.profile.convolutions, job.config.run.precision);
    const std::string obstacle = what_forbids_graphs();
    makes_graphs_ = job.config.run.graph.value_or(obstacle.empty());
    if (makes_graphs_ && !obstacle.empty())
        job.config.fail_at("run.graph", "a step cannot be a graph: " + obstacle, "set run.graph: false");
}

std::string CudaTraining::what_forbids_graphs() const {
    if (job.plan.asynchronous)
        return fmt::format("{} has no steps that repeat", job.plan.schedule);
    if (job.config.run.transport != RunConfig::Transport::Threads)
        return fmt::format("transport {}", name_of(job.config.run.transport));
    if (std::any_of(seats.begin(), seats.end(), [&](const Seat& seat) { return seat.gpu != seats.front().gpu; }))
        return "the devices are on several GPUs";
    return "";
}

std::vector<int> CudaTraining::devices_of(const Meeting& meeting) const {
    std::vector<int> devices;
    for (const int node : meeting.first)
        devices.push_back(plan.graph.device_of(node));
    return devices;
}

std::set<int> CudaTraining::gpus_of(const std::vector<int>& devices) const {
    std::set<int> gpus;
    for (const int device : devices)
        gpus.insert(seats[device].gpu);
    return gpus;
}

bool CudaTraining::is_on_one_gpu(const Meeting& meeting) const { return gpus_of(devices_of(meeting)).size() == 1; }

bool CudaTraining::reduces(int stage) const {
    const std::vector<int> holders = job.plan.shape.devices_of(stage);
    return transport_->reduces() && holders.size() > 1 && gpus_of(holders).size() == holders.size();
}

// The devices of each group of stages, and the holders of each stage.
std::vector<std::vector<int>> CudaTraining::sums_between_gpus() const {
    std::vector<std::vector<int>> sums;
    for (const SumGroup& group : sum_groups(job.plan.shape)) {
        sums.push_back(group.devices);
        for (const int stage : group.stages)
            sums.push_back(job.plan.shape.devices_of(stage));
    }
    std::erase_if(sums, [&](const std::vector<int>& devices) { return gpus_of(devices).size() == 1; });
    return sums;
}

void CudaTraining::fetch(const Meeting& meeting) {
    const std::vector<int> devices = devices_of(meeting);
    std::vector<Fetch> all;
    for (const int device : devices)
        all.insert(all.end(), cuda_device(device).fetches().begin(), cuda_device(device).fetches().end());
    if (!all.empty())
        transport_->fetch(devices, all);
}

void CudaTraining::reduce(const Meeting& meeting) {
    for (const int stage : meeting.stages) {
        if (!reduces(stage))
            continue;
        const std::vector<int> holders = job.plan.shape.devices_of(stage);
        std::vector<std::byte*> blocks;
        for (const int holder : holders)
            blocks.push_back(cuda_device(holder).gradients_of(stage).front().block);
        if (blocks.front() != nullptr && layouts().full[stage].weights > 0)
            transport_->reduce(holders, blocks, layouts().full[stage].weights);
    }
}

void CudaTraining::abort() {
    if (transport_)
        transport_->abort();
}

Costs CudaTraining::prepare_memory() {
    Costs costs = Training::prepare_memory();
    costs.sent_copies = true;
    make_lanes();
    return costs;
}

void CudaTraining::make_lanes() {
    streams_.assign(static_cast<std::size_t>(lanes_.size()), nullptr);
    std::set<Route> routes;
    for (int node = 0; node < plan.graph.size(); ++node) {
        const int lane = lanes_.lane_of(node);
        if (lane < 0)
            continue;
        const int device = plan.graph.device_of(node);
        if (streams_[lane] == nullptr)
            streams_[lane] = cuda_device(device).device().add_stream();
        const Op op = plan.graph.task(node).op;
        if (is_send(op))
            routes.insert({device, plan.graph.device_of(lanes_.partner(node)), op == Op::SendForward});
    }
    Network network{{}, {routes.begin(), routes.end()}, {}};
    for (int device = 0; device < job.plan.shape.devices; ++device)
        network.devices.push_back(&cuda_device(device).device());
    if (plan.trains())
        network.sums = sums_between_gpus();
    transport_ = job.config.run.transport == RunConfig::Transport::Nccl
                     ? make_nccl(network, job.config.run.deterministic, job.config.run.timeout)
                     : make_copies(network);
}

// The first step is queued as ever: libraries load their code, and plans are made.
void CudaTraining::make_graph() {
    std::vector<cudaStream_t> all;
    for (int device = 0; device < job.plan.shape.devices; ++device)
        all.push_back(cuda_device(device).device().stream());
    all.insert(all.end(), streams_.begin(), streams_.end());
    const CurrentGpu current(seats.front().gpu);
    graph_ = std::make_unique<StepGraph>(std::move(all));
    graph_->begin();
}

void CudaTraining::device_has_queued() {
    if (!graph_ || ++queued_ < job.plan.shape.devices)
        return;
    const CurrentGpu current(seats.front().gpu);
    if (!graph_->is_made())
        graph_->end();
    graph_->launch();
    all_launched_ = true;
}

// Of every GPU, by a stream of one of its devices; all are idle.
void CudaTraining::read_clocks(void (EventClock::*read)(cudaStream_t)) {
    std::set<int> done;
    for (int device = 0; device < job.plan.shape.devices; ++device) {
        const GpuShare& on = cuda_device(device).device();
        if (!done.insert(on.gpu()).second)
            continue;
        const CurrentGpu current(on.gpu());
        (clocks_.try_emplace(on.gpu()).first->second.*read)(on.stream());
    }
}

void CudaTraining::device_is_done(int device) {
    if (++done_ == job.plan.shape.devices) {
        read_clocks(&EventClock::read_after);
        clocks_read_ = true;
    } else if (const auto length = static_cast<int>(job.plan.order[device].size()); length > 0) {
        wait_until(plan.graph.node(device, length - 1), [this] { return clocks_read_.load(); });
    }
}

void CudaTraining::begin_step(int step) {
    read_clocks(&EventClock::read_before);
    if (makes_graphs_ && step == 1)
        make_graph();
    for (int device = 0; graph_ != nullptr && device < job.plan.shape.devices; ++device)
        *cuda_device(device).device().later_samples() = first_sample(step, 0) - first_sample(1, 0);
    queued_ = done_ = 0;
    clocks_read_ = false;
    all_launched_ = graph_ == nullptr;
}

// Queued by whichever thread brought the message's turn. It starts when the tensor is made, when both lanes
// are through with what came before, and, with deferred receives, when the receiver's list is there.
void CudaTraining::leave(int send) {
    if (!queues())
        return;
    const int recv = lanes_.partner(send);
    const NodeEvents &sent = events[send], &received = events[recv];
    const Task& task = plan.graph.task(send);
    const int edge = plan.edge_of(task);
    Parcel parcel;
    parcel.from_device = plan.graph.device_of(send);
    parcel.to_device = plan.graph.device_of(recv);
    parcel.forward = task.op == Op::SendForward;
    parcel.bytes = plan.moved[send];
    if (parcel.bytes > 0) {
        parcel.from = plan.tensors.made(parcel.forward, edge, task.microbatch);
        parcel.to = plan.tensors.landed(parcel.forward, edge, task.microbatch);
    }
    parcel.out = streams_[lanes_.lane_of(send)];
    parcel.in = streams_[lanes_.lane_of(recv)];
    const std::unique_lock turn = turn_to_capture();
    const CurrentGpu current(seats[parcel.from_device].gpu);
    call_for(send, "queues", [&] {
        sent.posted->block(parcel.out);
        sent.posted->block(parcel.in);
        if (!early_)
            received.posted->block(parcel.in);
        received.start->record(parcel.in);
        received.start->block(parcel.out);
        record_start(send, parcel.out);
        transport_->move(parcel);
        record_end(send, parcel.out);
        sent.awaited().block(parcel.in);
        record_end(recv, parcel.in);
    });
}

void CudaTraining::call_for(int node, const char* what, const std::function<void()>& call) const {
    try {
        call();
    } catch (const Error& error) {
        fail_with(error.code(), "device {} {} {}: {}", plan.graph.device_of(node), what, names[node], error.what());
    }
}

void CudaTraining::wait(int node) const {
    const Event& event = graph_ ? graph_->finished() : *events[node].end;
    wait_until(node, [&] { return all_launched_ && event.passed(); });
}

void CudaTraining::wait_until(int node, const std::function<bool()>& passed) const {
    using namespace std::chrono_literals;
    constexpr Ns kAwake = 2'000'000;
    const WaitingAt waiting(plan.watch.get(), plan.graph.device_of(node), node);
    const Ns start = clock_now();
    const auto is_over = [&] {
        bool over = false;
        call_for(node, "waits for", [&] { over = passed(); });
        return over;
    };
    while (!is_over()) {
        if (stopped_)
            fail_because_of_others();
        if (clock_now() - start < kAwake) {
            std::this_thread::yield();
            continue;
        }
        transport_->check_connections();
        std::this_thread::sleep_for(50us);
    }
}

Interval CudaTraining::interval(int node) const {
    const bool is_received = is_recv(plan.graph.task(node).op);
    const NodeEvents& begun = events[is_received ? lanes_.partner(node) : node];
    const int from = plan.graph.device_of(is_received ? lanes_.partner(node) : node);
    const int to = plan.graph.device_of(node);
    return {clocks_.at(seats[from].gpu).time_of(*begun.start), clocks_.at(seats[to].gpu).time_of(*events[node].end)};
}

void CudaTraining::finish(RunResult& result) {
    Training::finish(result);
    if (const int ways = count_impossible_ways(); ways > 0)
        result.notes.push_back(fmt::format("cuDNN cannot run {} of the profile's convolutions as it says: they were "
                                           "timed anew, and may take longer than predicted",
                                           ways));
    std::set<int> gpus;
    for (int device = 0; device < job.plan.shape.devices; ++device) {
        const GpuShare& on = cuda_device(device).device();
        const Bytes room = cuda_device(device).room();
        result.notes.push_back(fmt::format("device {}: {}{}", device, on.name(),
                                           room == 0 ? "" : fmt::format(", {} for sums between GPUs", print_bytes(room))));
        gpus.insert(on.gpu());
    }
    for (const int gpu : gpus) {
        const GpuMemory memory = memory_of(gpu);
        result.notes.push_back(fmt::format("GPU {}: {} of {} in use, with the libraries' own", gpu,
                                           print_bytes(memory.total - memory.free), print_bytes(memory.total)));
    }
    if (graph_)
        result.notes.push_back("steps from the second on are one CUDA graph");
}

}  // namespace pw::cuda

namespace pw {

std::unique_ptr<Devices> make_cuda_training(const RunPlan& plan, const RunOptions& options) {
    return std::make_unique<cuda::CudaTraining>(plan, options);
}

}  // namespace pw
