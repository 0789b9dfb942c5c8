#include "exec/cuda/training.h"

#include "exec/cuda/backend.h"
#include "exec/cuda/device/job_gpus.h"
#include "exec/engine/ranks_of_run.h"
#include "workloads/error.h"
#include "workloads/first_failure.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace pw::cuda {

std::unique_lock<std::mutex> CudaTraining::capture_lock() {
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
      shared(std::make_shared<JobGpus>()),
      places(places_of(the_plan, *shared)),
      events(static_cast<std::size_t>(the_plan.graph.size())),
      names(static_cast<std::size_t>(the_plan.graph.size())),
      early_(the_plan.job.setup.transfer.early_receive()),
      own_(the_plan.devices_of_rank(the_plan.map.own())),
      lanes_(the_plan.graph, the_plan.job.mode),
      graphs_(chosen_graphs()) {
    for (int device = 0; device < job.plan.shape.devices; ++device)
        devices_.push_back(std::make_unique<CudaDevice>(*this, device));
    if (!job.setup.run.deterministic && has_precision(job.setup, job.profile))
        shared->convolutions.take(job.profile.convolutions, job.setup.training.precision);
    if (plan.on_ranks)
        most_blocks_ = blocks_of_messages();
}

RunConfig::Graph CudaTraining::chosen_graphs() const {
    using Graph = RunConfig::Graph;
    const std::string of_tasks = obstacle_to_task_graphs(), of_steps = obstacle_to_step_graphs();
    const Graph chosen = job.setup.run.graph.value_or(of_tasks.empty() ? Graph::Task : Graph::None);
    if (chosen == Graph::Task && !of_tasks.empty())
        job.setup.fail_at("run.graph", "tasks cannot be graphs: " + of_tasks, "set run.graph: none");
    if (chosen == Graph::Step && !of_steps.empty())
        job.setup.fail_at("run.graph", "a step cannot be a graph: " + of_steps, "set run.graph: task or none");
    return chosen;
}

// On ranks memory cannot be reserved while a kernel may wait for another rank, and a graph reserves some.
std::string CudaTraining::obstacle_to_task_graphs() const {
    if (job.plan.asynchronous)
        return fmt::format("{} has no steps that repeat", job.plan.schedule);
    if (plan.on_ranks)
        return "the devices are on several ranks";
    return "";
}

std::string CudaTraining::obstacle_to_step_graphs() const {
    if (job.setup.run.transport != RunConfig::Transport::Threads)
        return fmt::format("transport {}", name_of(job.setup.run.transport));
    if (std::any_of(places.begin(), places.end(), [&](const Place& place) { return place.gpu != places.front().gpu; }))
        return "the devices are on several GPUs";
    return obstacle_to_task_graphs();
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
        if (streams_[lane] == nullptr && plan.is_here(device))
            streams_[lane] = cuda_device(device).device().add_stream();
        const Op op = plan.graph.task(node).op;
        if (is_send(op))
            routes.insert({device, plan.graph.device_of(lanes_.partner(node)), !carries_gradients(op)});
    }
    Network network{{}, {}, {routes.begin(), routes.end()}};
    for (int device = 0; device < job.plan.shape.devices; ++device) {
        network.devices.push_back(plan.is_here(device) ? &cuda_device(device).device() : nullptr);
        network.gpus.push_back(places[device].gpu);
    }
    if (plan.on_ranks) {
        network.ranks = &plan.ranks;
        network.own_rank = plan.map.own();
        network.has_stopped = [this] { return stopped_.load(); };
        network.most_blocks = most_blocks_;
    }
    if (plan.trains())
        network.sums = sums_between_gpus();
    transport_ = job.setup.run.transport == RunConfig::Transport::Nccl
                     ? make_nccl(network, job.setup.run.deterministic, job.setup.run.timeout)
                     : make_copies(network);
}

// On ranks a kernel that waits for another rank keeps its multiprocessors. So the kernels of all lanes of a device,
// and of a sum, use at most half of its multiprocessors, and no stream waits for another stream of its GPU.
int CudaTraining::blocks_of_messages() const {
    int most = Network{}.most_blocks;
    std::vector<std::set<int>> lanes(places.size());  // by device
    for (int node = 0; node < plan.graph.size(); ++node)
        if (const int lane = lanes_.table().lane_of[node]; lane >= 0)
            lanes[plan.graph.device_of(node)].insert(lane);
    std::map<Gpu, int> streams;
    for (std::size_t device = 0; device < places.size(); ++device) {
        const int kernels = static_cast<int>(lanes[device].size()) + 1;
        most = std::min(most, places[device].multiprocessors / 2 / kernels);
        if (most == 0)
            job.setup.fail_at("run.sms",
                              fmt::format("device {} has {} multiprocessors, too few for {} lanes whose kernels may "
                                          "all wait for other ranks at once",
                                          device, places[device].multiprocessors, kernels - 1),
                              "give it more, or write transfer: {communicator: direction}");
        streams[places[device].gpu] += kernels;
    }
    for (const auto& [gpu, count] : streams)
        if (count > streams_side_by_side())
            job.setup.fail_at("transfer.communicator",
                              fmt::format("GPU {} of rank {} has {} streams that may wait for other ranks or for each "
                                          "other, but only {} run concurrently",
                                          gpu.number, gpu.rank, count, streams_side_by_side()),
                              "write communicator: direction, put fewer devices on a GPU, or do not set "
                              "CUDA_DEVICE_MAX_CONNECTIONS");
    return most;
}

// The first step is queued without a graph: in it libraries load their code and make plans.
void CudaTraining::make_graph() {
    std::vector<cudaStream_t> all;
    for (const int device : own_) {
        all.push_back(cuda_device(device).device().stream());
        std::ranges::copy(cuda_device(device).copy_streams(), std::back_inserter(all));
    }
    all.insert(all.end(), streams_.begin(), streams_.end());
    const CurrentGpu current(places.front().gpu.number);
    graph_ = std::make_unique<StepGraph>(std::move(all));
    graph_->begin();
}

void CudaTraining::device_has_queued() {
    if (!graph_ || ++queued_ < static_cast<int>(own_.size()))
        return;
    const CurrentGpu current(places.front().gpu.number);
    if (!graph_->is_made())
        graph_->end();
    graph_->launch();
    all_launched_ = true;
}

// In the first step libraries load their code and make plans. S and U may wait for other devices.
bool CudaTraining::makes_task_graph(const Task& task) const {
    return graphs_ == RunConfig::Graph::Task && step_ > 0 && task.op != Op::SumGradients && task.op != Op::Update;
}

// Reads the clock of every GPU, with a stream of one of its devices. All streams are idle.
void CudaTraining::read_clocks(void (EventClock::*read)(cudaStream_t)) {
    std::set<int> done;
    for (const int device : own_) {
        const GpuShare& on = cuda_device(device).device();
        if (!done.insert(on.gpu()).second)
            continue;
        const CurrentGpu current(on.gpu());
        (clocks_.try_emplace(on.gpu()).first->second.*read)(on.stream());
    }
}

// On several ranks a kernel that waits for another rank may be on the GPU from now on, and an allocation of memory
// might wait for that kernel.
void CudaTraining::device_has_room(int device) {
    ++have_room_;
    if (plan.on_ranks && !job.plan.order[device].empty())
        wait_until(plan.graph.node(device, 0), [this] { return have_room_ == static_cast<int>(own_.size()); });
}

void CudaTraining::device_is_done(int device) {
    if (++done_ == static_cast<int>(own_.size())) {
        read_clocks(&EventClock::read_after);
        clocks_read_ = true;
    } else if (const auto length = static_cast<int>(job.plan.order[device].size()); length > 0) {
        wait_until(plan.graph.node(device, length - 1), [this] { return clocks_read_.load(); });
    }
}

void CudaTraining::begin_step(int step) {
    read_clocks(&EventClock::read_before);
    step_ = step;
    if (makes_step_graphs() && step == 1)
        make_graph();
    if (plan.on_ranks && step == 0)
        lands_from_ = landing_positions(plan);
    // U is in the graph of a step alone.
    if (step > 0 && graphs_ != RunConfig::Graph::None)
        for (const int device : own_)
            *cuda_device(device).device().later() = {first_sample(step, 0) - first_sample(1, 0),
                                                     makes_step_graphs() ? step - 1 : 0};
    queued_ = done_ = 0;
    clocks_read_ = false;
    all_launched_ = graph_ == nullptr;
}

// Called on the thread that allows the message to start. On the GPU it starts when the tensor is made, when both
// lanes have finished their earlier messages and, with deferred receives, when the receiver's list has reached the
// RECV.
void CudaTraining::leave(int send) {
    if (!queues())
        return;
    const int recv = lanes_.partner(send);
    const NodeEvents &sent = events[send], &received = events[recv];
    const DeviceMessage message = message_of(send);
    const std::unique_lock lock = capture_lock();
    const CurrentGpu current(places[message.from_device].gpu.number);
    call_for(send, "queues", [&] {
        sent.posted->block(message.out);
        sent.posted->block(message.in);
        if (!early_)
            received.posted->block(message.in);
        received.start->record(message.in);
        received.start->block(message.out);
        record_start(send, message.out);
        transport_->move(message);
        record_end(send, message.out);
        sent.awaited().block(message.in);
        record_end(recv, message.in);
    });
}

// Members that belong to another rank are null.
DeviceMessage CudaTraining::message_of(int send) const {
    const int recv = lanes_.partner(send);
    const Task& task = plan.graph.task(send);
    const int edge = plan.edge_of(task);
    DeviceMessage message;
    message.from_device = plan.graph.device_of(send);
    message.to_device = plan.graph.device_of(recv);
    message.forward = !carries_gradients(task.op);
    message.bytes = plan.moved[send];
    if (message.bytes > 0) {
        message.from = plan.tensors.made(message.forward, edge, task.microbatch);
        message.to = plan.tensors.landed(message.forward, edge, task.microbatch);
    }
    message.out = streams_[lanes_.table().lane_of[send]];
    message.in = streams_[lanes_.table().lane_of[recv]];
    return message;
}

bool CudaTraining::crosses(int transfer) const {
    const int one = plan.graph.device_of(transfer), other = plan.graph.device_of(lanes_.partner(transfer));
    return plan.map.rank_of(one) != plan.map.rank_of(other);
}

// Returns the event after which the message may be written to its landing buffer.
const Event& CudaTraining::landing(int recv) const {
    const int before = early_ ? plan.graph.node(plan.graph.device_of(recv), lands_from_[recv] - 1) : recv;
    return is_transfer(plan.graph.task(before).op) ? *events[before].posted : events[before].awaited();
}

// Enqueues an end of a message. Another rank enqueues the other end, earlier or later.
void CudaTraining::enqueue(int transfer) {
    const bool is_sent = is_send(plan.graph.task(transfer).op);
    const DeviceMessage message = message_of(is_sent ? transfer : lanes_.partner(transfer));
    const cudaStream_t lane = is_sent ? message.out : message.in;
    const CurrentGpu current(places[plan.graph.device_of(transfer)].gpu.number);
    call_for(transfer, "queues", [&] {
        if (is_sent)
            events[transfer].posted->block(lane);
        else if (!early_ || lands_from_[transfer] > 0)
            landing(transfer).block(lane);
        record_start(transfer, lane);
        is_sent ? transport_->send(message) : transport_->receive(message);
        record_end(transfer, lane);
    });
}

void CudaTraining::call_for(int node, const char* what, const std::function<void()>& call) const {
    try {
        call();
    } catch (const Unreachable&) {
        throw;
    } catch (const Error& error) {
        fail_with(error.code(), "device {} {} {}: {}", plan.graph.device_of(node), what, names[node], error.what());
    }
}

void CudaTraining::wait(int node) const {
    const Event& event = graph_ ? graph_->finished() : *events[node].end;
    wait_until(node, [&] { return all_launched_ && event.passed(); });
}

void CudaTraining::wait_until(int node, const std::function<bool()>& passed) const {
    const WaitingAt waiting(plan.monitor.get(), plan.graph.device_of(node), node);
    poll_until(node, passed);
}

// Kernels that measure write to memory of the host.
void CudaTraining::wait_for_squares(const Barrier& barrier) {
    for (const int node : barrier.first)
        if (plan.is_here(plan.graph.device_of(node)))
            poll_until(node, [&] { return events[node].arrivals.front().passed(); });
}

void CudaTraining::poll_until(int node, const std::function<bool()>& passed) const {
    const auto is_over = [&] {
        bool over = false;
        call_for(node, "waits for", [&] { over = passed(); });
        return over;
    };
    for (const Ns start = clock_now(); !is_over(); rest_in_wait(start)) {
        if (stopped_)
            fail_because_of_others();
        if (clock_now() - start >= kAwakeInWait)
            transport_->check_connections();
    }
}

Interval CudaTraining::interval(int node) const {
    const int begun = is_recv(plan.graph.task(node).op) && !crosses(node) ? lanes_.partner(node) : node;
    const auto clock_of = [&](int of) -> const EventClock& {
        return clocks_.at(places[plan.graph.device_of(of)].gpu.number);
    };
    return {clock_of(begun).time_of(*events[begun].start), clock_of(node).time_of(*events[node].end)};
}

std::vector<GpuUse> CudaTraining::gpus() const {
    std::map<int, GpuUse> by_number;
    for (const int device : own_) {
        const Gpu& gpu = places[device].gpu;
        GpuUse& use = by_number.try_emplace(gpu.number, GpuUse{gpu.rank, gpu.number, {}}).first->second;
        use.devices.push_back(device);
    }
    std::vector<GpuUse> uses;
    for (auto& [number, use] : by_number) {
        const GpuMemory memory = memory_of(number);
        use.used = memory.total - memory.free;
        uses.push_back(std::move(use));
    }
    return uses;
}

// Returns the notes of this rank.
std::vector<std::string> CudaTraining::notes() const {
    std::vector<std::string> notes;
    const std::string whose = !plan.on_ranks ? "" : fmt::format("rank {}: ", plan.map.own());
    if (const int plans = shared->convolutions.impossible(); plans > 0)
        notes.push_back(
            fmt::format("{}cuDNN cannot run {} of the convolutions with the profile's plans: they "
                        "were timed again, and may take longer than predicted",
                        whose, plans));
    std::set<int> gpus;
    for (const int device : own_) {
        const GpuShare& on = cuda_device(device).device();
        const Bytes room = cuda_device(device).room();
        notes.push_back(fmt::format("{}device {}: {}{}", whose, device, on.name(),
                                    room == 0 ? "" : fmt::format(", {} for sums between GPUs", print_bytes(room))));
        gpus.insert(on.gpu());
    }
    for (const int gpu : gpus) {
        const GpuMemory memory = memory_of(gpu);
        notes.push_back(fmt::format("{}GPU {}: {} of {} in use, with that of the libraries", whose, gpu,
                                    print_bytes(memory.total - memory.free), print_bytes(memory.total)));
    }
    if (graph_)
        notes.push_back("from the second step on, each step is one CUDA graph");
    else if (graphs_ == RunConfig::Graph::Task && step_ > 0)
        notes.push_back("from the second step on, each task is one CUDA graph");
    return notes;
}

void CudaTraining::finish(RunResult& result) {
    Training::finish(result);
    std::vector<std::string> all = notes();
    if (plan.on_ranks) {
        Message own;
        for (const std::string& note : all)
            write_text(own, note);
        all.clear();
        for (const Message& message : gather(plan.ranks, own))
            for (MessageReader reader(message); !reader.at_end();)
                all.push_back(reader.read_text());
    }
    std::ranges::move(all, std::back_inserter(result.notes));
}

}  // namespace pw::cuda

namespace pw {

std::unique_ptr<Devices> make_cuda_training(const RunPlan& plan, const RunOptions& options) {
    return std::make_unique<cuda::CudaTraining>(plan, options);
}

}  // namespace pw
