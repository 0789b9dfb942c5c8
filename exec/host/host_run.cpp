// One process, one thread per device: sets the devices up, steps them, gathers what happened.
#include "exec/execute.h"
#include "exec/host/host_device.h"
#include "exec/host/pin.h"
#include "exec/loop.h"
#include "schedules/durations.h"
#include "schedules/schedule.h"
#include "workloads/first_failure.h"
#include "workloads/start_thread.h"

#include <algorithm>
#include <limits>
#include <thread>

namespace pw {

namespace {

class HostRun {
public:
    HostRun(const Job& job, const RunOptions& options)
        : job_(job),
          options_(options),
          plan_(job),
          work_(make_work(plan_, options)),
          cores_(plan_cores(job.plan.shape.devices, job.config.run.threads_per_device)),
          gate_(job.plan.shape.devices + 1) {
        for (int device = 0; device < job.plan.shape.devices; ++device)
            devices_.push_back(std::make_unique<HostDevice>(plan_, work_->device(device), device));
        events_.resize(devices_.size());
    }

    RunResult run() {
        std::vector<std::thread> threads;
        threads.reserve(devices_.size());
        guarded([&] {
            for (int device = 0; device < static_cast<int>(devices_.size()); ++device)
                threads.push_back(start_thread(fmt::format("device {}", device),
                                               [this, device] { guarded([&] { device_thread(device); }); }));
        });
        if (!failure_.happened())
            guarded([&] { main_thread(); });
        for (std::thread& thread : threads)
            thread.join();
        if (failure_.happened())
            work_->abort();
        failure_.rethrow();
        return result();
    }

private:
    template <class Act>
    void guarded(Act act) {
        failure_.guard(act, [&] {
            gate_.abort();
            plan_.meetings->abort();
            if (mailbox_)
                mailbox_->abort();
        });
    }

    void device_thread(int number) {
        HostDevice& device = *devices_[number];
        if (work_->computes() && !cores_.shared)
            pin_this_thread(cores_.cores[number]);
        work_->device(number).prepare();
        gate_.arrive();
        gate_.arrive();  // the main thread has planned memory and transfers
        device.make_memory(options_.guarded);
        device.set_mailbox(*mailbox_);
        work_->device(number).begin();
        gate_.arrive();
        for (int step = 0; step < job_.steps; ++step) {
            gate_.arrive();
            record(number, step, run_list(job_.plan, plan_.graph, number, step, device));
            device.end_step();
            work_->device(number).end_step();
            gate_.arrive();
        }
    }

    void record(int device, int step, const std::vector<Interval>& intervals) {
        const std::vector<Task>& order = job_.plan.order[device];
        for (std::size_t position = 0; position < order.size(); ++position) {
            const Task& task = order[position];
            const int version = version_of(task, job_.versions, job_.plan);
            // one version per step before this one
            const int earlier = job_.plan.asynchronous || !plan_.trains() ? 0 : step;
            events_[device].push_back({step, device, 0, task, intervals[position].start, intervals[position].end,
                                       plan_.moved[plan_.graph.node(device, static_cast<int>(position))],
                                       version < 0 ? -1 : version + earlier, ahead_of(task, job_.versions)});
        }
    }

    void main_thread() {
        gate_.arrive();
        plan_memory();
        gate_.arrive();
        gate_.arrive();
        for (int step = 0; step < job_.steps; ++step) {
            const Ns start = clock_now();
            mailbox_->begin_step();
            work_->begin_step(step);
            gate_.arrive();
            gate_.arrive();
            if (options_.progress)
                options_.progress(
                    {step + 1, job_.steps, loss_of(step, job_.plan.shape.updates() - 1), clock_now() - start});
        }
    }

    void plan_memory() {
        const Costs costs = work_->costs();
        const bool early = job_.config.transfer.receive == "early";
        plan_.edges = costs.edges;
        for (int node = 0; node < plan_.graph.size(); ++node)
            plan_.moved.push_back(bytes_moved(plan_.graph.task(node), job_.plan.shape, costs));
        plan_.buffers = buffers_of(job_.plan, costs, job_.versions, early);
        add_gradient_parts();
        if (job_.within_memory)
            refuse_over_memory(job_.plan, plan_.buffers, job_.config.cluster.devices);  // by the backend's sizes
        const int devices = job_.plan.shape.devices;
        plan_.packing = options_.guarded ? Guards::pack(plan_.buffers, devices) : pack(plan_.buffers, devices);
        plan_.tensors = EdgeBuffers(plan_.edges.size(), job_.plan.shape.microbatches);
        plan_transfers(costs, keeps_copies(costs, early));
    }

    // Each part but the first beside the stage's gradients.
    void add_gradient_parts() {
        std::vector<Buffer> parts;
        for (const Buffer& buffer : plan_.buffers) {
            if (buffer.use != BufferUse::Gradients)
                continue;
            for (int part = 1; part < plan_.gradient_parts(buffer.stage); ++part) {
                parts.push_back(buffer);
                parts.back().part = part;
            }
        }
        plan_.buffers.insert(plan_.buffers.end(), parts.begin(), parts.end());
    }

    void plan_transfers(const Costs& costs, bool copies) {
        Mailbox::Options options;
        options.mode = executed_mode(job_.config);
        options.mode.sent_copies = copies;
        options.timeout = job_.config.run.timeout;
        options.spin = !cores_.shared;
        options.payload = copies ? work_.get() : nullptr;
        options.link.latency = costs.link.latency;
        for (int node = 0; node < plan_.graph.size(); ++node) {
            const Task& task = plan_.graph.task(node);
            options.link.occupation.push_back(is_send(task.op) ? occupation_of(task, job_.plan.shape, costs) : 0);
        }
        mailbox_ = std::make_unique<Mailbox>(plan_.graph, std::move(options));
    }

    // Mean loss of the k-th mini-batch of a step, summed in micro-batch order.
    double loss_of(int step, int update) const {
        const Shape& shape = job_.plan.shape;
        double sum = 0;
        for (int mb = shape.first_of(update); mb <= shape.last_of(update); ++mb)
            sum += work_->loss(step, mb);
        return sum / static_cast<double>(plan_.samples_of(update));
    }

    RunResult result() const {
        RunResult result;
        for (const auto& device : devices_) {
            result.peak.push_back(device->arena().peak());
            result.arena.push_back(device->arena().size());
        }
        for (int step = 0; step < job_.steps; ++step)
            for (int update = 0; update < job_.plan.shape.updates(); ++update)
                result.losses.push_back(loss_of(step, update));
        result.trace = trace();
        work_->finish(result);
        return result;
    }

    Trace trace() const {
        Trace trace;
        trace.label = "measured";
        trace.plan_hash = hash_of(job_.plan);
        trace.schedule = job_.plan.schedule;
        trace.config = job_.config.yaml;
        trace.machine = work_->machine();
        trace.devices = job_.plan.shape.devices;
        trace.stages = job_.plan.shape.stages;
        trace.micro_batches = plan_.sizes.per_mini_batch;
        trace.micro_batch_size = plan_.sizes.full;
        trace.mini_batch = plan_.sizes.mini_batch;
        trace.asynchronous = job_.plan.asynchronous;
        Ns origin = std::numeric_limits<Ns>::max();
        for (const auto& events : events_)
            for (const TraceEvent& event : events)
                origin = std::min(origin, event.start);
        for (std::size_t device = 0; device < devices_.size(); ++device) {
            trace.stages_of.push_back(job_.plan.shape.stages_of(static_cast<int>(device)));
            for (TraceEvent event : events_[device]) {
                event.start -= origin;
                event.end -= origin;
                trace.events.push_back(event);
            }
            for (MemorySample sample : devices_[device]->samples()) {
                sample.time = std::max<Ns>(0, sample.time - origin);
                trace.memory.push_back(sample);
            }
        }
        return trace;
    }

    const Job& job_;
    const RunOptions& options_;
    HostPlan plan_;
    std::unique_ptr<HostWork> work_;
    const CorePlan cores_;
    Gate gate_;
    std::vector<std::unique_ptr<HostDevice>> devices_;
    std::unique_ptr<Mailbox> mailbox_;             // its thread ends before the devices' memory does
    std::vector<std::vector<TraceEvent>> events_;  // [device]
    FirstFailure failure_;
};

}  // namespace

RunResult run(const Job& job, const RunOptions& options) {
    check_runnable(job);
    return HostRun(job, options).run();
}

}  // namespace pw
