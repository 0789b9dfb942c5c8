#include "exec/emulated/emulation.h"
#include "exec/engine/machine.h"

#include "exec/engine/arena.h"
#include "exec/engine/pin.h"
#include "schedules/plan/contention.h"
#include "schedules/plan/durations.h"
#include "workloads/error.h"
#include "workloads/random.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

namespace pw {

namespace {

constexpr Ns kSecond = 1'000'000'000;
// A device spins in the last part of a task's time, since a sleep ends late, most of all on an idle machine.
constexpr Ns kSpun = 200'000;
constexpr Ns kResolution = 60'000;  // of task times: the thread of the next task may first have to wake up
constexpr std::size_t kTagBytes = sizeof(std::uint64_t);

// The result depends on every bit of both arguments and on their order.
std::uint64_t mix(std::uint64_t hash, std::uint64_t value) { return mixed(hash ^ value); }

double fraction(std::uint64_t tag) { return std::ldexp(static_cast<double>(tag), -64); }

}  // namespace

EmulatedDevice::EmulatedDevice(Emulation& run, int device) : run_(run), device_(device) {
    const Job& job = run.job;
    for (const int stage : job.plan.shape.stages_of(device)) {
        StageState& state = stages_[stage];
        const std::uint64_t initial =
            mix(static_cast<std::uint64_t>(job.setup.training.seed), static_cast<std::uint64_t>(stage));
        state.weights.assign(static_cast<std::size_t>(job.versions.held[stage]), initial);
        state.slot_of = weight_slots(job.plan, job.versions, stage, device);
        state.forward.assign(static_cast<std::size_t>(job.plan.shape.microbatches), 0);
        state.gradient = state.forward;
        state.parts.resize(static_cast<std::size_t>(run.plan.gradient_parts(stage)));
    }
    if (has_copies(job.plan.order[static_cast<std::size_t>(device)]))
        copies_ = std::make_unique<CopyThreads>(run.plan.graph, job.plan.order[static_cast<std::size_t>(device)],
                                                device, job.mode, [this](int node) {
                                                    const Ns begun = clock_now();
                                                    run_.sleep_until(begun + run_.durations[node]);
                                                });
}

void EmulatedDevice::prepare() { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

std::unique_ptr<Memory> EmulatedDevice::reserve(Bytes bytes) {
    return host_memory(bytes, fmt::format("device {}", device_), false);
}

void EmulatedDevice::begin_step(int step) {
    step_ = step;
    if (!run_.job.plan.asynchronous)
        for (auto& [stage, state] : stages_)
            state.newest = 0;
}

void EmulatedDevice::run(const Task& task, int node) {
    const Ns begun = clock_now();
    if (Dispatcher* const dispatcher = run_.dispatcher_of(node)) {
        run_.sleep_until(begun + run_.job.costs.dispatch);
        dispatcher->release();
    }
    const Ns summed = task.op == Op::SumGradients ? run_.buckets_summed(node) : 0;
    run_.sleep_until(std::max(begun, summed) + run_.durations[node]);
    if (makes_weight_gradient(task.op))
        run_.ended[node] = clock_now();
    switch (task.op) {
        case Op::Forward:
            return forward(task);
        case Op::Backward:
            backward_input(task);
            return backward_weight(task);
        case Op::BackwardInput:
            return backward_input(task);
        case Op::BackwardWeight:
            return backward_weight(task);
        case Op::Recompute:
            stages_.at(task.stage).forward[task.microbatch] = activation_of(task);
            return;
        case Op::SumGradients:
            return sum_gradients(node);
        case Op::Update:
            return update(task);
        case Op::SendForward:
        case Op::RecvForward:
        case Op::SendBackward:
        case Op::RecvBackward:
        case Op::Offload:
        case Op::Reload:
        case Op::Store:
        case Op::Load:
            fail_with(ExitCode::RunFailed, "emulated devices do not run {}", print(task));
    }
}

std::uint64_t EmulatedDevice::weights_for(const Task& task, int version) const {
    const StageState& state = stages_.at(task.stage);
    const std::uint64_t weights = state.weights[state.slot_of[version]];
    const int ahead = ahead_of(task, run_.job.versions);
    if (const double back = back_of(task, run_.job.versions, run_.job.plan); back > 0)
        return mix(weights, std::bit_cast<std::uint64_t>(back));
    return ahead == 0 ? weights : mix(weights, static_cast<std::uint64_t>(ahead));
}

std::uint64_t EmulatedDevice::activation_of(const Task& task) const {
    const int mb = task.microbatch, version = run_.job.versions.forward[task.stage][mb];
    std::uint64_t tag = mix(static_cast<std::uint64_t>(task.stage), static_cast<std::uint64_t>(mb));
    tag = mix(tag, static_cast<std::uint64_t>(step_));
    tag = mix(tag, weights_for(task, version));
    if (run_.job.plan.shape.slice_of(mb) > 0)
        tag = mix(tag, stages_.at(task.stage).forward[mb - 1]);
    const std::vector<EdgeBytes>& edges = run_.plan.edges;
    for (int edge = 0; edge < static_cast<int>(edges.size()); ++edge)
        if (edges[edge].to == task.stage)
            tag = mix(tag, run_.read(true, edge, task));
    return tag;
}

void EmulatedDevice::forward(const Task& task) {
    const int mb = task.microbatch;
    const std::uint64_t tag = stages_.at(task.stage).forward[mb] = activation_of(task);
    const std::vector<EdgeBytes>& edges = run_.plan.edges;
    for (int edge = 0; edge < static_cast<int>(edges.size()); ++edge)
        if (edges[edge].from == task.stage)
            run_.write(true, edge, mb, mix(tag, static_cast<std::uint64_t>(edge)));
    const Shape& shape = run_.job.plan.shape;
    if (task.stage + 1 == shape.stages)
        run_.losses[mb] = fraction(tag) * run_.plan.sizes.of(shape.whole_of(mb)) / shape.slices;
}

void EmulatedDevice::backward_input(const Task& task) {
    StageState& state = stages_.at(task.stage);
    const int mb = task.microbatch, version = run_.job.versions.backward[task.stage][mb];
    std::uint64_t tag = mix(state.forward[mb], weights_for(task, version));
    if (const Shape& shape = run_.job.plan.shape; shape.slice_of(mb) + 1 < shape.slices)
        tag = mix(tag, state.gradient[mb + 1]);
    const std::vector<EdgeBytes>& edges = run_.plan.edges;
    for (int edge = 0; edge < static_cast<int>(edges.size()); ++edge) {
        if (edges[edge].from == task.stage)
            tag = mix(tag, run_.read(false, edge, task));
        if (edges[edge].to == task.stage && (edges[edge].forward_until_input || edges[edge].forward_until_weight))
            (void)run_.read(true, edge, task);  // checks that the tensor has not been overwritten
    }
    state.gradient[mb] = tag;
    for (int edge = 0; edge < static_cast<int>(edges.size()); ++edge)
        if (edges[edge].to == task.stage)
            run_.write(false, edge, mb, mix(tag, static_cast<std::uint64_t>(edge)));
}

void EmulatedDevice::backward_weight(const Task& task) {
    StageState& state = stages_.at(task.stage);
    const std::vector<EdgeBytes>& edges = run_.plan.edges;
    for (int edge = 0; edge < static_cast<int>(edges.size()); ++edge) {
        if (edges[edge].to == task.stage && edges[edge].forward_until_weight)
            (void)run_.read(true, edge, task);
        if (edges[edge].from == task.stage && edges[edge].backward_until_weight)
            (void)run_.read(false, edge, task);
    }
    Part& part = state.parts[run_.plan.gradient_part(task.stage, task.microbatch)];
    part = {mix(part.sum, state.gradient[task.microbatch]), true};
}

void EmulatedDevice::wait_at_barrier(const Task& task, int node) {
    if (!run_.plan.barriers->begins(node))
        return;
    if (task.op == Op::Update)
        for (const auto& [stage, state] : stages_)
            if (run_.plan.is_first_holder(device_, stage))
                run_.sums[stage] = gradient_of(state);
    run_.plan.barriers->arrive(node);
}

void EmulatedDevice::wait_for_dispatcher(int node) {
    if (Dispatcher* const dispatcher = run_.dispatcher_of(node))
        dispatcher->acquire();
}

std::uint64_t EmulatedDevice::sum_of_holders(int stage) const {
    std::uint64_t sum = 0;
    bool begun = false;
    for (const int holder : run_.job.plan.shape.devices_of(stage))
        for (const Part& part : run_.emulated_device(holder).stages_.at(stage).parts)
            if (part.begun)
                sum = std::exchange(begun, true) ? mix(sum, part.sum) : part.sum;
    return sum;
}

void EmulatedDevice::sum_gradients(int node) {
    if (!run_.plan.barriers->begins(node))
        return;
    const std::vector<int>& stages = run_.plan.barriers->barrier(node)->stages;
    std::uint64_t sum = sum_of_holders(stages.front());
    for (std::size_t k = 1; k < stages.size(); ++k)
        sum = mix(sum, sum_of_holders(stages[k]));
    run_.plan.barriers->arrive(node);  // until all have read
    for (const int stage : stages)
        if (const auto own = stages_.find(stage); own != stages_.end()) {
            own->second.sum = sum;
            own->second.summed = true;
        }
}

void EmulatedDevice::update(const Task& task) {
    StageState& state = stages_.at(task.stage);
    const int number = run_.job.plan.shape.mini_batch_of(task.microbatch);
    std::uint64_t gradient = gradient_of(state);
    if (run_.job.plan.shape.global_norm)
        for (const std::uint64_t sum : run_.sums)
            gradient = mix(gradient, sum);
    if (run_.plan.is_first_holder(device_, task.stage))
        run_.norms[number][task.stage] = fraction(gradient);
    const std::uint64_t old = state.weights[state.slot_of[state.newest]];
    state.weights[state.slot_of[++state.newest]] = mix(old, gradient);
    state.summed = false;
    std::fill(state.parts.begin(), state.parts.end(), Part{});
}

std::uint64_t EmulatedDevice::weights(int stage) const {
    const StageState& state = stages_.at(stage);
    return state.weights[state.slot_of[state.newest]];
}

Emulation::Emulation(const RunPlan& the_plan)
    : plan(the_plan),
      job(the_plan.job),
      durations(durations_of(job.plan, the_plan.graph, job.costs, job.versions)),
      sum_delays(sum_delays_of(job.plan, the_plan.graph, job.costs, job.versions)),
      ended(durations.size(), 0),
      sent_(static_cast<std::size_t>(the_plan.graph.size())) {
    const Shape& shape = job.plan.shape;
    const auto microbatches = static_cast<std::size_t>(shape.microbatches);
    sums.assign(static_cast<std::size_t>(shape.stages), 0);
    losses.assign(microbatches, 0);
    if (plan.trains())
        norms.assign(static_cast<std::size_t>(shape.updates()),
                     std::vector<double>(static_cast<std::size_t>(shape.stages), 0));
    for (auto& tags : tags_)
        tags.assign(job.costs.edges.size(), std::vector<std::uint64_t>(microbatches, 0));
    for (int device = 0; device < shape.devices; ++device)
        devices_.push_back(std::make_unique<EmulatedDevice>(*this, device));
    if (!may_wait_for_calls(shape, job.costs))
        return;
    const auto last_host = std::max_element(job.costs.cluster->host.begin(), job.costs.cluster->host.end());
    for (int host = 0; host <= (job.costs.cluster->host.empty() ? 0 : *last_host); ++host)
        dispatchers_.push_back(std::make_unique<Dispatcher>());
}

void Dispatcher::acquire() {
    std::unique_lock lock(mutex_);
    const std::int64_t turn = requested_++;
    changed_.wait(lock, [&] { return stopped_ || served_ == turn; });
}

void Dispatcher::release() {
    const std::lock_guard lock(mutex_);
    ++served_;
    changed_.notify_all();
}

void Dispatcher::stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
}

Dispatcher* Emulation::dispatcher_of(int node) const {
    const int other = overlaps_pairs(job.costs) ? plan.graph.paired_with(node) : -1;
    if (dispatchers_.empty() || (other >= 0 && other < node))
        return nullptr;
    return dispatchers_[static_cast<std::size_t>(job.costs.cluster->host_of(plan.graph.device_of(node)))].get();
}

void Emulation::stop() {
    stopped_ = true;
    for (const std::unique_ptr<Dispatcher>& dispatcher : dispatchers_)
        dispatcher->stop();
}

// A long sleep is divided, so that a failed run ends soon.
void Emulation::sleep_until(Ns until) const {
    const Ns wakes = until - kSpun;
    while (clock_now() < wakes && !stopped_) {
        const Ns next = std::min(wakes, clock_now() + kSecond / 10);
        const timespec time{next / kSecond, next % kSecond};
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr);
    }
    while (clock_now() < until && !stopped_)
        std::this_thread::yield();
}

Ns Emulation::buckets_summed(int sum) const {
    Ns last = 0;
    for (const int pass : plan.graph.inputs(sum))
        last = std::max(last, ended[pass] + sum_delays[pass]);
    return last;
}

Emulation::Ends Emulation::ends_of(std::byte* buffer, bool is_forward, int edge, int microbatch) const {
    const EdgeBytes& bytes = plan.edges[edge];
    const auto size = static_cast<std::size_t>(
        scaled_bytes(is_forward ? bytes.forward : bytes.backward, job.costs.length_of(microbatch, bytes.from).bytes));
    const std::size_t length = std::min(size / kTagBytes * kTagBytes, sizeof(SentTags::start));
    if (buffer == nullptr || length == 0)
        return {};
    return {buffer, buffer + (size / kTagBytes * kTagBytes - length), length};  // the two ends agree where they overlap
}

Emulation::Ends Emulation::ends_of(const Task& transfer) const {
    const int edge = plan.edge_of(transfer), mb = transfer.microbatch;
    const bool is_forward = !carries_gradients(transfer.op);
    if (edge < 0)  // the stages exchange no tensor
        return {};
    const EdgeBuffers& tensors = plan.tensors;
    return ends_of(is_send(transfer.op) ? tensors.made(is_forward, edge, mb) : tensors.landed(is_forward, edge, mb),
                   is_forward, edge, mb);
}

namespace {

void fill(std::byte* at, std::size_t length, std::uint64_t tag) {
    for (std::size_t offset = 0; offset < length; offset += kTagBytes)
        std::memcpy(at + offset, &tag, kTagBytes);
}

bool holds(const std::byte* at, std::size_t length, std::uint64_t tag) {
    for (std::size_t offset = 0; offset < length; offset += kTagBytes)
        if (std::memcmp(at + offset, &tag, kTagBytes) != 0)
            return false;
    return true;
}

}  // namespace

void Emulation::write(bool is_forward, int edge, int microbatch, std::uint64_t tag) {
    tags_[is_forward][edge][microbatch] = tag;
    const Ends ends = ends_of(plan.tensors.made(is_forward, edge, microbatch), is_forward, edge, microbatch);
    fill(ends.start, ends.length, tag);
    fill(ends.end, ends.length, tag);
}

std::uint64_t Emulation::read(bool is_forward, int edge, const Task& reader) const {
    const std::uint64_t tag = tags_[is_forward][edge][reader.microbatch];
    const Ends ends =
        ends_of(plan.tensors.landed(is_forward, edge, reader.microbatch), is_forward, edge, reader.microbatch);
    if (!holds(ends.start, ends.length, tag) || !holds(ends.end, ends.length, tag))
        fail_with(ExitCode::RunFailed, "{} reads a {} that stage {} has not made: its buffer was overwritten",
                  print(reader), is_forward ? "tensor" : "gradient",
                  is_forward ? plan.edges[edge].from : plan.edges[edge].to);
    return tag;
}

std::string Emulation::machine() const { return machine_name(); }

void Emulation::leave(int send) {
    const Ends ends = ends_of(plan.graph.task(send));
    std::copy_n(ends.start, ends.length, sent_[send].start.begin());
    std::copy_n(ends.end, ends.length, sent_[send].end.begin());
}

void Emulation::arrive(int recv) {
    const Ends ends = ends_of(plan.graph.task(recv));
    const SentTags& sent = sent_[plan.graph.inputs(recv).front()];
    std::copy_n(sent.start.begin(), ends.length, ends.start);
    std::copy_n(sent.end.begin(), ends.length, ends.end);
}

// The times of shorter tasks depend on the machine more than on the plan.
std::string Emulation::note_on_short_tasks() const {
    Ns shortest = kResolution;
    std::size_t few = 0, tasks = 0;
    for (int node = 0; node < plan.graph.size(); ++node) {
        if (!is_compute(plan.graph.task(node).op) || durations[node] == 0)
            continue;
        ++tasks;
        few += durations[node] < kResolution;
        shortest = std::min(shortest, durations[node]);
    }
    if (few == 0)
        return {};
    return fmt::format(
        "{} of {} tasks last less than {}, the shortest {}: a change of threads takes as long, so "
        "that the step time depends more on this machine than on the plan",
        few, tasks, print_time(kResolution), print_time(shortest));
}

void Emulation::finish(RunResult& result) {
    result.notes.emplace_back(
        "emulated devices do not train: losses, norms and weights are checksums of the tasks and "
        "their order");
    if (const std::string note = note_on_short_tasks(); !note.empty())
        result.notes.push_back(note);
    const Shape& shape = job.plan.shape;
    std::uint64_t hash = 0;
    for (int stage = 0; stage < shape.stages; ++stage)
        hash = mix(hash, devices_[shape.devices_of(stage).front()]->weights(stage));
    result.weights_hash = fmt::format("{:016x}", hash);
}

std::vector<double> Emulation::gradient_norms() const {
    std::vector<double> all;
    for (const std::vector<double>& row : norms)
        all.push_back(std::accumulate(row.begin(), row.end(), 0.0));
    return all;
}

std::unique_ptr<Devices> make_emulation(const RunPlan& plan, const RunOptions& options) {
    for (const auto& [folder, flag] : {std::pair(options.dump, "--dump"), std::pair(options.save, "--save")})
        if (!folder.empty())
            fail("run.backend emulated has no tensors to write\n  help: run without {}, or with run.backend cpu", flag);
    return std::make_unique<Emulation>(plan);
}

}  // namespace pw
