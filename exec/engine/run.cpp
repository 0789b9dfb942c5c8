// Runs a job with a thread per device, in a single process or as one of several ranks: sets up the devices, runs the
// steps and gathers the results.
#include "exec/engine/checkpoints_of_run.h"
#include "exec/engine/device_thread.h"
#include "exec/engine/gathering.h"
#include "exec/engine/machine.h"
#include "exec/engine/phase_barrier.h"
#include "exec/engine/pin.h"
#include "exec/engine/planning.h"
#include "exec/engine/ranks_of_run.h"
#include "exec/engine/run_monitor.h"
#include "exec/engine/run_threads.h"
#include "exec/engine/step_log.h"
#include "exec/execute.h"
#include "exec/ranks/ranks.h"
#include "exec/ranks/shared_failure.h"
#include "exec/ranks/watchdog.h"
#include "exec/runnable.h"
#include "exec/system/periodic_call.h"
#include "exec/system/threads.h"
#include "job/launched_ranks.h"
#include "job/trace_config.h"
#include "schedules/orders/schedule.h"
#include "schedules/plan/plan_graph.h"
#include "workloads/error.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace pw {

namespace {

// The points at which the main thread and the threads of all devices wait for each other, and what holds there.
enum class Phase {
    Prepared,    // the sizes of all stages are known, and no memory is reserved
    Planned,     // buffers and transfers are planned, and the mailbox exists
    Placed,      // every device has its memory, with initial values
    StepBegins,  // mailbox and devices are set for the step, and none of its tasks has begun
    StepEnds,    // all tasks of the step are done, and devices do nothing until the next step begins
};

// The events of a device in a step, in list order.
std::vector<TraceEvent> events_of(const RunPlan& plan, int device, int step, const std::vector<Interval>& intervals) {
    const Job& job = plan.job;
    const std::vector<Task>& order = job.plan.order[device];
    const int earlier = job.plan.asynchronous || !plan.trains() ? 0 : step;  // versions: one per earlier step
    std::vector<TraceEvent> events;
    events.reserve(order.size());
    for (std::size_t position = 0; position < order.size(); ++position) {
        const Task& task = order[position];
        const int version = version_of(task, job.versions, job.plan);
        events.push_back({step, device, plan.map.own(), task, intervals[position].start, intervals[position].end,
                          plan.moved[plan.graph.node(device, static_cast<int>(position))],
                          version < 0 ? -1 : version + earlier, ahead_of(task, job.versions)});
    }
    return events;
}

// Mean loss of the k-th mini-batch of the step, summed in micro-batch order.
double loss_of(const RunPlan& plan, const Devices& work, int update) {
    const Shape& shape = plan.job.plan.shape;
    double sum = 0;
    for (int mb = shape.first_of(update); mb <= shape.last_of(update); ++mb)
        sum += work.loss(mb);
    return sum / static_cast<double>(plan.samples_of(update));
}

ControlConnection::Callbacks callbacks_of(const RunPlan& plan, RunMonitor& monitor) {
    ControlConnection::Callbacks callbacks;
    callbacks.write_activity = [&plan, own = plan.devices_of_rank(plan.map.own())](Message& message) {
        plan.monitor->write(own, message);
    };
    callbacks.read_activity = [&plan](MessageReader& message) { plan.monitor->read(message); };
    callbacks.check = [&monitor](Ns passed) { monitor.check_ranks(passed); };
    callbacks.describe = [&plan](int rank) {
        return fmt::format("rank {} ({})", rank, plan.monitor->describe(plan.devices_of_rank(rank)));
    };
    callbacks.last_tasks = [&plan](int rank) { return plan.monitor->last_tasks(plan.devices_of_rank(rank)); };
    return callbacks;
}

// Plans the memory and the messages of a run when all devices are prepared.
std::unique_ptr<Mailbox> make_mailbox(RunPlan& plan, Devices& work, bool guarded, bool spin, RunMonitor& monitor) {
    const Costs costs = work.prepare_memory();
    plan_memory(plan, costs, guarded);
    const bool copies = keeps_copies(costs, plan.job.setup.transfer.early_receive());
    Mailbox::Options messages = plan_messages(plan, costs, copies, work.carrier());
    messages.spin = spin;
    messages.payload = copies ? &work : nullptr;
    monitor.set_limits(plan_limits(plan, messages.link));
    return std::make_unique<Mailbox>(plan.graph, std::move(messages));
}

StepRecord empty_step(std::size_t devices) {
    StepRecord step;
    step.events.resize(devices);
    step.memory.resize(devices);
    return step;
}

// Names the hosts on which the ranks ran, whatever the config says.
Trace trace_of_run(const RunPlan& plan, const Devices& work, const StepLog& log,
                   const std::optional<RankReport>& ranks) {
    Trace trace = trace_of(plan.job.plan);
    trace.label = "measured";
    trace.machine = work.machine();
    trace.reserved = plan.packing.arena;
    add_config(trace, plan.job);
    if (ranks)
        trace.hosts.clear();
    for (int device = 0; ranks && device < trace.devices; ++device)
        trace.hosts.push_back(ranks->hosts[static_cast<std::size_t>(plan.map.rank_of(device))]);
    log.write(trace);
    return trace;
}

class Run : public std::enable_shared_from_this<Run> {
public:
    Run(const Job& job, const RunOptions& options, std::shared_ptr<Ranks> ranks)
        : job_(job),
          options_(options),
          ranks_(std::move(ranks)),
          plan_(job_, options_.resumed ? &options_.resumed->checkpoint : nullptr, *ranks_),
          own_(plan_.devices_of_rank(plan_.map.own())),
          work_(make_devices(plan_, options_)),
          cores_(cores_of_rank(job.setup, job.plan.shape.devices, *ranks_)),
          phases_(static_cast<int>(own_.size()) + 1),
          devices_(static_cast<std::size_t>(job.plan.shape.devices)),
          gathered_(plan_, *work_),
          step_(empty_step(devices_.size())),
          log_(options.whole_trace),
          checkpoints_(plan_, options_, *work_),
          failure_(*ranks_, [this] { stop(); }) {
        for (const int device : own_)
            devices_[device] = std::make_unique<DeviceThread>(plan_, work_->device(device), device, options_);
    }

    RunResult run() {
        failure_.guard([&] {
            for (std::size_t number = 0; number < own_.size(); ++number)
                start(number);
        });
        if (!failure_.happened())
            failure_.guard([&] { main_thread(); });
        if (!end_threads())
            failure_.rethrow();
        if (failure_.happened()) {
            work_->abort();
            work_->explain();
        }
        failure_.rethrow();
        RunResult all;
        failure_.guard([&] {
            monitor_.together([&] { all = result(); });
            if (options_.finished && is_first_rank())
                options_.finished(all);
            work_->write_files(all);
        });
        failure_.rethrow();
        failure_.leave();
        return all;
    }

    void open_control_connection() {
        if (ranks_->size() > 1)
            failure_.open_control_connection(job_.setup.run.timeout, monitor_.interval(),
                                             callbacks_of(plan_, monitor_));
    }

private:
    void stop() {
        phases_.abort();
        work_->stop();
        plan_.barriers->abort();
        const std::lock_guard lock(mailbox_mutex_);
        if (mailbox_)
            mailbox_->abort();
    }

    bool is_first_rank() const { return plan_.map.own() == 0; }

    // A thread that never ends keeps the run alive.
    void start(std::size_t number) {
        threads_.start(fmt::format("device {}", own_[number]),
                       [this, self = shared_from_this(), number] { failure_.guard([&] { device_thread(number); }); });
    }

    // Returns whether all threads have ended. If a device is silent, it waits for the threads only a little longer.
    bool end_threads() {
        Ns waited = 0;
        return threads_.join(monitor_.interval(), [&] {
            if (failure_.happened() && !monitor_.is_silent() && monitor_.has_limits())
                failure_.note([&] { monitor_.check_devices(monitor_.interval()); });
            return monitor_.is_silent() && (waited += monitor_.interval()) > SharedFailure::kGrace;
        });
    }

    void device_thread(std::size_t number) {
        DeviceThread& device = *devices_[own_[number]];
        if (work_->computes() && !cores_.shared)
            pin_this_thread(cores_.cores[number]);
        Device& own = work_->device(own_[number]);
        own.prepare();
        wait_at(Phase::Prepared);
        wait_at(Phase::Planned);
        device.make_memory();
        device.set_mailbox(*mailbox_);
        own.begin();
        wait_at(Phase::Placed);
        for (int step = 0; step < steps_; ++step) {
            wait_at(Phase::StepBegins);
            if (stopped_after_)
                return;
            step_.events[own_[number]] = events_of(plan_, own_[number], step, device.run_step(step));
            step_.memory[own_[number]] = device.take_samples();
            own.end_step();
            device.end_step();
            if (checkpoints_.is_due(step)) {
                checkpoints_.wait_until_made();
                own.keep_state();
            }
            wait_at(Phase::StepEnds);
        }
    }

    void wait_at(Phase phase) { phases_.arrive(static_cast<int>(phase)); }
    // While it waits, it advances the pending checkpoint, and checks the devices unless the control connection does.
    void wait_monitoring(Phase phase) {
        constexpr Ns kBetweenAdvances = 2'000'000;
        Ns unchecked = 0;
        phases_.arrive(static_cast<int>(phase), checkpoints_.advance() ? monitor_.interval() : kBetweenAdvances,
                       [&](Ns passed) {
                           checkpoints_.advance();
                           mailbox_->let_sleep(checkpoints_.is_busy());
                           if (failure_.has_control_connection() || (unchecked += passed) < monitor_.interval())
                               return;
                           monitor_.check_devices(std::exchange(unchecked, 0));
                       });
    }

    void main_thread() {
        checkpoints_.open();
        wait_at(Phase::Prepared);
        monitor_.together([&] { plan(); });
        const Bytes resident = work_->uses_cores() ? resident_memory() : 0;
        const std::vector<GpuUse> gpus = work_->gpus();
        wait_at(Phase::Planned);
        wait_at(Phase::Placed);
        monitor_.together([&] {
            gathered_.exchange_addresses();
            checkpoints_.warm_up();
        });
        monitor_.begin_steps();
        for (int step = 0; step < steps_; ++step) {
            const Ns start = clock_now();
            mailbox_->begin_step();
            mailbox_->let_sleep(checkpoints_.is_busy());  // it uses the cores of waiting devices
            work_->begin_step(step);
            wait_at(Phase::StepBegins);
            wait_monitoring(Phase::StepEnds);
            monitor_.together([&] { end_step(step); });
            if (options_.progress && is_first_rank())
                options_.progress({step + 1 + done_, steps_ + done_, losses_.back(), clock_now() - start});
            if (step + 1 < steps_ && stops_) {
                stopped_after_ = step + 1 + done_;
                take_checkpoint(step);
                wait_at(Phase::StepBegins);  // devices check stopped_after_ there
                break;
            }
            if (checkpoints_.is_due(step))
                take_checkpoint(step);
            if (step + 1 < steps_ && options_.between_steps)
                options_.between_steps(step + 1, steps_);
        }
        monitor_.together([&] { checkpoints_.complete(); });
        if (resident > 0)
            resident_growth_ = resident_memory() - resident;
        gpus_ = work_->gpus();
        for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu)
            gpus_[gpu].grown = gpus_[gpu].used - gpus[gpu].used;
    }

    void take_checkpoint(int step) {
        monitor_.together([&] { checkpoints_.complete(); });  // the previous checkpoint
        checkpoints_.take(step);
    }

    void end_step(int step) {
        stops_ = gathered_.step(step_, options_.should_stop && options_.should_stop());
        for (int update = 0; update < job_.plan.shape.updates(); ++update)
            losses_.push_back(loss_of(plan_, *work_, update));
        const std::vector<double> norms = work_->gradient_norms();
        norms_.insert(norms_.end(), norms.begin(), norms.end());
        work_->check_numbers(step);
        if (is_first_rank())
            log_.add(step, std::move(step_));
        step_ = empty_step(devices_.size());
    }

    void plan() {
        auto mailbox = make_mailbox(plan_, *work_, options_.guarded, !cores_.shared, monitor_);
        const std::lock_guard lock(mailbox_mutex_);
        mailbox_ = std::move(mailbox);
    }

    RunResult result() {
        RunResult result;
        result.peak.resize(devices_.size());
        for (const int device : own_) {
            result.peak[device] = devices_[device]->arena().peak();
            if (work_->uses_cores())
                result.disturbance.cpu_share.push_back(devices_[device]->cpu_share());
        }
        if (work_->uses_cores())
            result.places = places_of(plan_, cores_);
        result.resident_growth = resident_growth_;
        result.gpus = gpus_;
        gathered_.result(result);
        work_->finish(result);
        result.asked_to_stop = stops_;
        if (!is_first_rank())
            return result;
        LostCheckpoints lost = checkpoints_.finish();
        std::ranges::move(lost.earlier, std::back_inserter(result.warnings));
        result.lost_checkpoint = std::move(lost.last);
        result.stopped_after = stopped_after_;
        result.arena = plan_.packing.arena;
        result.losses = losses_;
        result.gradient_norms = norms_;
        if (!log_.has_median())
            result.notes.push_back(
                "the step of the median time is no longer stored: the step shown is the nearest stored one");
        result.trace = trace_of_run(plan_, *work_, log_, result.ranks);
        if (work_->uses_cores()) {
            result.disturbance.stolen = stolen_.share();
            result.disturbance.shared_cores = cores_.shared;
            std::ranges::move(warnings_of(result.disturbance), std::back_inserter(result.warnings));
        }
        return result;
    }

    const Job& job_;
    const int steps_ = steps_of(job_);
    const RunOptions options_;
    const int done_ = steps_before(options_);
    const std::shared_ptr<Ranks> ranks_;
    RunPlan plan_;
    RunMonitor monitor_{*plan_.monitor, job_.setup.run.timeout};
    const std::vector<int> own_;  // devices of this rank
    RunThreads threads_{own_.size()};
    std::unique_ptr<Devices> work_;
    const CorePlan cores_;
    const StolenTime stolen_;
    PhaseBarrier phases_;
    std::vector<std::unique_ptr<DeviceThread>> devices_;  // by device (null for devices of other ranks)
    Gathering gathered_;
    Mutex mailbox_mutex_;
    std::unique_ptr<Mailbox> mailbox_;  // its thread ends before the devices' memory is freed
    StepRecord step_;                   // of the current step (every device has its own rows)
    StepLog log_;
    std::vector<double> losses_, norms_;  // by update
    std::optional<Bytes> resident_growth_;
    std::vector<GpuUse> gpus_;  // of this rank
    CheckpointsOfRun checkpoints_;
    bool stops_ = false;  // a rank has been asked to stop
    std::optional<int> stopped_after_;
    SharedFailure failure_;  // destroyed first: its connection's thread uses all of the above
};

}  // namespace

RunResult run(const Job& job, const RunOptions& options) {
    check_runnable(job);
    if (options.whole_trace)
        check_whole_trace(job);
    if (!runs_on_ranks(job.setup.run))
        return std::make_shared<Run>(job, options, ranks_of_process(false))->run();
    const Ns timeout = job.setup.run.timeout;
    const std::string text = fmt::format("the other ranks have not joined within {}", print_time(timeout));
    std::optional<Watchdog> until_all_watch;
    until_all_watch.emplace(timeout, text);
    const std::shared_ptr<Ranks> ranks = ranks_of_process(true);
    // Messages that MPI has accepted make progress only during calls of MPI, also while all threads compute or wait.
    const PeriodicCall progress(2'000'000, "progress between ranks", [&ranks] { ranks->progress(); });
    check_ranks(job, *ranks);
    const auto rank_run = std::make_shared<Run>(job, options, ranks);
    until_all_watch.emplace(2 * timeout, text);  // rank 0 names a rank that does not connect within `timeout`
    rank_run->open_control_connection();
    until_all_watch.reset();
    try {
        return rank_run->run();
    } catch (...) {
        ranks->keep(rank_run);  // remote ranks may still read its memory
        throw;
    }
}

}  // namespace pw
