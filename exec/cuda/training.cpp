#include "exec/cuda/training.h"

#include "exec/cuda/backend.h"
#include "exec/cuda/layers/algorithms.h"
#include "workloads/error.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

namespace pw::cuda {

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
    streams_.assign(static_cast<std::size_t>(lanes_.table().lanes), nullptr);
    std::set<Route> routes;
    for (int node = 0; node < plan.graph.size(); ++node) {
        const int lane = lanes_.table().lane_of[node];
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
    parcel.out = streams_[lanes_.table().lane_of[send]];
    parcel.in = streams_[lanes_.table().lane_of[recv]];
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
        result.notes.push_back(
            fmt::format("cuDNN cannot run {} of the profile's convolutions as it says: they were "
                        "timed anew, and may take longer than predicted",
                        ways));
    std::set<int> gpus;
    for (int device = 0; device < job.plan.shape.devices; ++device) {
        const GpuShare& on = cuda_device(device).device();
        const Bytes room = cuda_device(device).room();
        result.notes.push_back(
            fmt::format("device {}: {}{}", device, on.name(),
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
