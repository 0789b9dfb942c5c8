// One process, one thread per device: sets the devices up, steps them, gathers what happened.
#include "exec/dump.h"
#include "exec/execute.h"
#include "exec/host/host_device.h"
#include "exec/host/pin.h"
#include "exec/loop.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <thread>

namespace pw {

namespace {

class HostRun {
public:
    HostRun(const Job& job, const RunOptions& options, const HostKernels& kernels, const Dataset& data)
        : job_(job), options_(options), shared_(job, kernels, data), gate_(job.plan.shape.devices + 1) {
        shared_.dump = !options.dump.empty();
        for (int device = 0; device < job.plan.shape.devices; ++device)
            devices_.push_back(std::make_unique<HostDevice>(shared_, device));
        events_.resize(devices_.size());
    }

    RunResult run() {
        const CorePlan cores = plan_cores(job_.plan.shape.devices, job_.config.run.threads_per_device);
        std::vector<std::thread> threads;
        for (int device = 0; device < static_cast<int>(devices_.size()); ++device)
            threads.emplace_back([this, device, &cores] {
                guarded([&] { device_thread(device, cores.shared ? std::vector<int>{} : cores.cores[device]); });
            });
        guarded([&] { main_thread(); });
        for (std::thread& thread : threads)
            thread.join();
        if (failure_)
            std::rethrow_exception(failure_);
        return result();
    }

private:
    template <class Act>
    void guarded(Act act) {
        try {
            act();
        } catch (...) {
            const std::lock_guard lock(failure_mutex_);
            if (!failure_)
                failure_ = std::current_exception();
            gate_.abort();
            shared_.mailbox.abort();
        }
    }

    void device_thread(int device, const std::vector<int>& cores) {
        pin_this_thread(cores);
        shared_.kernels.start_device(job_.config.run.threads_per_device);
        devices_[device]->make_programs();
        gate_.arrive();
        gate_.arrive();  // the main thread has planned the memory
        for (const int stage : job_.plan.shape.stages_of(device))
            devices_[device]->program(stage).set_layout(layouts_[stage]);
        devices_[device]->make_memory();
        gate_.arrive();
        for (int step = 0; step < job_.steps; ++step) {
            gate_.arrive();
            record(device, step, run_list(job_.plan, shared_.graph, device, step, *devices_[device]));
            gate_.arrive();
        }
    }

    void record(int device, int step, const std::vector<Interval>& intervals) {
        const std::vector<Task>& order = job_.plan.order[device];
        for (std::size_t position = 0; position < order.size(); ++position) {
            const Task& task = order[position];
            const int version = version_of(task, job_.versions, job_.plan);
            const int earlier = job_.plan.asynchronous ? 0 : step;  // one version per step before this one
            events_[device].push_back({step, device, 0, task, intervals[position].start, intervals[position].end,
                                       bytes_moved(task, shared_.edges), version < 0 ? -1 : version + earlier});
        }
    }

    void main_thread() {
        gate_.arrive();
        plan_memory();
        gate_.arrive();
        gate_.arrive();
        for (int step = 0; step < job_.steps; ++step) {
            const Ns start = clock_now();
            gate_.arrive();
            gate_.arrive();
            if (options_.progress)
                options_.progress(
                    {step + 1, job_.steps, loss_of(step, job_.plan.shape.updates() - 1), clock_now() - start});
        }
    }

    void plan_memory() {
        shared_.edges = edge_bytes(job_.model.layers, job_.split, shared_.layer_bytes);
        const Bytes data = shared_.kernels.data_bytes(job_.model.input, job_.config.pipeline.micro_batch_size);
        for (int stage = 0; stage < job_.split.stages(); ++stage)
            layouts_.push_back(layout_stage(job_.model.layers, job_.split, stage, shared_.layer_bytes, data));
        Costs costs;  // the backend's own sizes, no times
        for (const StageLayout& layout : layouts_)
            costs.bytes.push_back(stage_bytes(layout, splits_backward(job_.plan)));
        costs.edges = shared_.edges;
        costs.sent_copies = false;  // hand-over by pointer
        shared_.buffers = buffers_of(job_.plan, costs, job_.versions, job_.config.transfer.receive == "early");
        if (job_.within_memory)
            refuse_over_memory(job_.plan, shared_.buffers, job_.config.cluster.devices);  // by the backend's sizes
        shared_.packing = pack(shared_.buffers, job_.plan.shape.devices);
        const std::vector<std::byte*> row(static_cast<std::size_t>(job_.plan.shape.microbatches), nullptr);
        shared_.landing_forward.assign(shared_.edges.size(), row);
        shared_.landing_backward.assign(shared_.edges.size(), row);
    }

    // Mean loss of the k-th mini-batch of a step, summed in micro-batch order.
    double loss_of(int step, int update) const {
        const int per_update = shared_.per_update();
        const int first = update * per_update;
        const int last = std::min(first + per_update, job_.plan.shape.microbatches);
        double sum = 0;
        for (int mb = first; mb < last; ++mb)
            sum += shared_.losses[step][mb];
        return sum / (static_cast<double>(last - first) * job_.config.pipeline.micro_batch_size);
    }

    RunResult result() const {
        RunResult result;
        std::vector<NamedTensor> parameters;
        for (const auto& device : devices_) {
            const std::vector<NamedTensor> own = device->parameters();
            parameters.insert(parameters.end(), own.begin(), own.end());
            result.peak.push_back(device->arena().peak());
            result.arena.push_back(device->arena().size());
        }
        result.weights_hash = hash_of(std::move(parameters));
        for (int step = 0; step < job_.steps; ++step)
            for (int update = 0; update < job_.plan.shape.updates(); ++update)
                result.losses.push_back(loss_of(step, update));
        for (const std::vector<double>& squares : shared_.squares) {
            double sum = 0;
            for (const double square : squares)
                sum += square;
            result.gradient_norms.push_back(std::sqrt(sum));
        }
        result.trace = trace();
        if (shared_.dump)
            write_dump(options_.dump, shared_, result.losses.front());
        return result;
    }

    Trace trace() const {
        Trace trace;
        trace.label = "measured";
        trace.plan_hash = hash_of(job_.plan);
        trace.schedule = job_.plan.schedule;
        trace.config = job_.config.yaml;
        trace.machine = machine_name();
        trace.devices = job_.plan.shape.devices;
        trace.stages = job_.plan.shape.stages;
        trace.micro_batches = job_.config.pipeline.micro_batches;
        trace.micro_batch_size = job_.config.pipeline.micro_batch_size;
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
    SharedRun shared_;
    Gate gate_;
    std::vector<std::unique_ptr<HostDevice>> devices_;
    std::vector<StageLayout> layouts_;
    std::vector<std::vector<TraceEvent>> events_;  // [device]
    std::exception_ptr failure_;
    std::mutex failure_mutex_;
};

}  // namespace

RunResult run(const Job& job, const RunOptions& options) {
    const HostKernels& kernels = kernels_named(job.config.run.backend);
    const Dataset data = open_dataset(job.config, job.model);
    return HostRun(job, options, kernels, data).run();
}

}  // namespace pw
