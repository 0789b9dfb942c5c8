#include "exec/engine/device_thread.h"

namespace pw {

namespace {

// Reading a thread's CPU clock is a system call, about 5 us for both ends of a task. A device's tasks are alike, so
// that a sample of them is enough.
constexpr Ns kWorthClocking = 20'000, kBetweenClocks = 10'000'000;

bool is_on_edge(BufferUse use) {
    return use == BufferUse::LandingForward || use == BufferUse::LandingBackward || use == BufferUse::SentForward ||
           use == BufferUse::SentBackward;
}

}  // namespace

void DeviceThread::make_memory() {
    const std::size_t length = plan_.job.plan.order[device_].size();
    arena_.emplace(work_.reserve(plan_.packing.arena[device_]));
    if (options_.guarded)
        guards_.emplace(plan_.buffers, plan_.packing, *arena_, plan_.job.plan, device_);
    first_uses_.resize(length);
    last_uses_.resize(length);
    intervals_.resize(length);
    sample_of_.resize(length);
    offloads_after_.resize(length);
    for (std::size_t position = 0; position < length; ++position)
        if (const int node = node_of(static_cast<int>(position)); leaves_device(plan_.graph.task(node).op)) {
            const std::span<const int> inputs = plan_.graph.inputs(node);
            (inputs.empty() ? stores_ : offloads_after_[plan_.graph.position_of(inputs.front())]).push_back(node);
        }
    for (int k = 0; k < static_cast<int>(plan_.buffers.size()); ++k) {
        const Buffer& buffer = plan_.buffers[k];
        if (buffer.device != device_)
            continue;
        first_uses_[buffer.first].push_back(k);
        last_uses_[buffer.last].push_back(k);
        if (buffer.lives_on())
            (void)arena_->acquire(plan_.packing.offset[k], buffer.bytes, buffer.kind);
        std::byte* address = arena_->address(plan_.packing.offset[k]);
        if (is_on_edge(buffer.use))
            plan_.tensors.place(buffer, address);
        else
            work_.place(buffer, address);
    }
}

void DeviceThread::begin_step(int step) {
    step_ = step;
    samples_.reserve(last_uses_.size());
    work_.begin_step(step);
    if (HostCopies* const copies = work_.copies())
        copies->begin_step();
}

bool DeviceThread::is_persistent(const Buffer& buffer) const {
    return buffer.first == 0 && buffer.last + 1 == static_cast<int>(last_uses_.size());
}

// Buffers for the whole list are acquired once and never released.
void DeviceThread::acquire(int position) {
    for (const int k : first_uses_[position]) {
        const Buffer& buffer = plan_.buffers[k];
        if (!is_persistent(buffer) || step_ == 0)
            (void)arena_->acquire(plan_.packing.offset[k], buffer.bytes, buffer.kind);
    }
}

void DeviceThread::release(int position, Ns now) {
    sample_of_[position] = -1;
    if (samples_.empty() || samples_.back().use != arena_->in_use()) {
        sample_of_[position] = static_cast<int>(samples_.size());
        samples_.push_back({step_, device_, now, arena_->in_use()});
    }
    if (guards_)
        guards_->after(position);
    for (const int k : last_uses_[position])
        if (const Buffer& buffer = plan_.buffers[k]; !is_persistent(buffer))
            arena_->release(buffer.bytes, buffer.kind);
}

void DeviceThread::wait_for_transfer(int node) {
    mailbox_->wait(node);
    work_.queue().wait_for_transfer(node);
}

// Waits for all transfers between a position and the task that computes before it.
void DeviceThread::wait_for_exchange(int position) {
    for (int before = position - 1; before >= 0; --before) {
        const int node = node_of(before);
        const Op op = plan_.graph.task(node).op;
        if (!moves_data(op))
            return;
        if (is_transfer(op))
            wait_for_transfer(node);
    }
}

// A copy to the host has been posted by its F, or by the step. Its buffer is free when the list has passed it.
void DeviceThread::pass_copy(const Task& task, int position) {
    const int node = node_of(position);
    if (leaves_device(task.op))
        work_.copies()->wait(node);
    plan_.monitor->set_working(device_, node);
    acquire(position);
    mailbox_->reach(device_, position);
    if (options_.before_task)
        options_.before_task(device_, task);
    const Ns now = clock_now();
    if (returns_to_device(task.op))
        work_.copies()->post(node);
    release(position, now);
    plan_.monitor->finish_task(device_, node, clock_now() - now);
}

// The waits come before acquire(): only then is the memory that the position reuses free. A device with a queue of its
// own may still execute much earlier tasks.
void DeviceThread::launch(const Task& task, int position) {
    const int node = node_of(position);
    if (is_copy(task.op))
        return pass_copy(task, position);
    for (const int input : plan_.graph.inputs(node)) {
        const Op op = plan_.graph.task(input).op;
        if (plan_.graph.device_of(input) == device_ && is_recv(op))
            wait_for_transfer(input);
        if (plan_.graph.device_of(input) == device_ && is_copy(op))
            work_.copies()->wait(input);
    }
    if (plan_.job.mode.blocks() && !is_transfer(task.op))
        wait_for_exchange(position);
    if (is_transfer(task.op)) {
        mailbox_->wait_to_post(node);
        work_.queue().about_to_post(node, mailbox_->earlier_on_edge(node));
    }
    if (is_closing(task.op))
        work_.wait_at_barrier(task, node);
    if (!is_transfer(task.op))
        work_.wait_for_dispatcher(node);
    plan_.monitor->set_working(device_, node);
    acquire(position);
    mailbox_->reach(device_, position);
    if (options_.before_task)
        options_.before_task(device_, task);
    Interval& interval = intervals_[position];
    const bool computes = is_compute(task.op);  // S and U may wait for other devices
    const bool clocked = computes && last_task_ >= kWorthClocking && reached_ - clocked_ >= kBetweenClocks;
    if (clocked)
        core_clock_.start();
    interval.start = clock_now();
    if (is_transfer(task.op))
        mailbox_->post(node);
    else
        work_.run(task, node);
    interval.end = clock_now();
    work_.has_run(node);
    for (const int offload : offloads_after_[position])
        work_.copies()->post(offload);
    reached_ = interval.end;
    if (clocked) {
        core_clock_.stop();
        clocked_ = interval.end;
    }
    if (computes)
        last_task_ = interval.end - interval.start;
    release(position, interval.start);
    plan_.monitor->finish_task(device_, node, interval.end - interval.start);
}

void DeviceThread::wait_for_all() {
    work_.queue().all_queued();
    for (int position = 0; position < static_cast<int>(intervals_.size()); ++position) {
        const int node = node_of(position);
        if (const Op op = plan_.graph.task(node).op; is_transfer(op))
            mailbox_->wait(node);
        else if (is_copy(op))
            work_.copies()->wait(node);
        work_.queue().wait(node);
    }
    work_.queue().all_done();
}

Interval DeviceThread::interval_of(int position) {
    const int node = node_of(position);
    const Op op = plan_.graph.task(node).op;
    const Interval interval = work_.queue().interval(node, is_transfer(op) ? mailbox_->interval(node)
                                                           : is_copy(op)   ? work_.copies()->interval(node)
                                                                           : intervals_[position]);
    if (!moves_data(op) && sample_of_[position] >= 0)
        samples_[sample_of_[position]].time = interval.start;
    return interval;
}

const std::vector<Interval>& DeviceThread::run_step(int step) {
    const std::vector<Task>& order = plan_.job.plan.order[device_];
    begin_step(step);
    for (const int store : stores_)
        work_.copies()->post(store);
    for (int position = 0; position < static_cast<int>(order.size()); ++position)
        launch(order[position], position);
    wait_for_all();
    for (int position = 0; position < static_cast<int>(order.size()); ++position)
        intervals_[position] = interval_of(position);
    return intervals_;
}

void DeviceThread::end_step() {
    if (guards_)
        guards_->end_step();
    plan_.monitor->set_away(device_);
}

}  // namespace pw
