// Runs a job in one process, or its part of it as one of several ranks, with one thread per device: it sets the devices
// up, steps them and gathers what happened.
#include "exec/engine/checkpoints_of_run.h"
#include "exec/engine/device_thread.h"
#include "exec/engine/gathering.h"
#include "exec/engine/machine.h"
#include "exec/engine/phase_barrier.h"
#include "exec/engine/pin.h"
#include "exec/engine/planning.h"
#include "exec/engine/ranks_of_run.h"
#include "exec/engine/step_log.h"
#include "exec/execute.h"
#include "exec/ranks/ranks.h"
#include "exec/ranks/shared_failure.h"
#include "exec/ranks/watchdog.h"
#include "exec/system/every.h"
#include "exec/system/threads.h"
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

// The points at which all threads of a run wait for each other, its devices' and the main one, and what then holds.
enum class Phase {
    Prepared,    // the sizes of all stages are known; no memory is reserved
    Planned,     // buffers and transfers are planned and the mailbox is there
    Placed,      // every device has its memory, with initial values in it
    StepBegins,  // mailbox and devices are set for the step, and none of its tasks has begun
    StepEnds,    // all tasks of the step are done; until the next one begins devices touch nothing
};

class Run : public std::enable_shared_from_this<Run> {
public:
    Run(const Job& job, const RunOptions& options, std::shared_ptr<Ranks> ranks)
        : job_(job),
          options_(options),
          ranks_(std::move(ranks)),
          plan_(job_, options_.resumed ? &options_.resumed->checkpoint : nullptr, *ranks_),
          own_(plan_.devices_of_rank(plan_.map.own())),
          work_(make_devices(plan_, options_)),
          cores_(cores_of_rank(job.config, job.plan.shape.devices, *ranks_)),
          phases_(static_cast<int>(own_.size()) + 1),
          devices_(static_cast<std::size_t>(job.plan.shape.devices)),
          gathered_(plan_, *work_),
          log_(options.whole_trace),
          checkpoints_(job_, options_, *work_, *ranks_),
          failure_(*ranks_, [this] { stop(); }) {
        for (const int device : own_)
            devices_[device] = std::make_unique<DeviceThread>(plan_, work_->device(device), device, options_);
        clear_step();
    }

    RunResult run() {
        threads_.reserve(own_.size());
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
            together([&] { all = result(); });
            if (options_.finished && speaks())
                options_.finished(all);
            work_->write_files(all);
        });
        failure_.rethrow();
        failure_.leave();
        return all;
    }

    void open_control_connection() {
        if (ranks_->size() == 1)
            return;
        ControlConnection::Callbacks callbacks;
        callbacks.write_activity = [this](Message& message) { plan_.monitor->write(own_, message); };
        callbacks.read_activity = [this](MessageReader& message) { plan_.monitor->read(message); };
        callbacks.check = [this](Ns passed) {
            if (steps_begun_)
                plan_.monitor->check(limits_, passed);
            check_gathering(passed);
        };
        callbacks.describe = [this](int rank) {
            return fmt::format("rank {} ({})", rank, plan_.monitor->describe(plan_.devices_of_rank(rank)));
        };
        callbacks.last_tasks = [this](int rank) { return plan_.monitor->last_tasks(plan_.devices_of_rank(rank)); };
        failure_.open_control_connection(job_.config.run.timeout, slice_, std::move(callbacks));
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

    // What all ranks do together, on the main thread.
    template <class Act>
    void together(Act act) {
        ++gathering_;
        act();
        ++gathering_;
    }

    // On rank 0: a message that is lost when no device works would be waited for without end.
    void check_gathering(Ns passed) {
        const int gathering = gathering_;
        if (gathering % 2 == 0 || (steps_begun_ && !plan_.monitor->all_away()) ||
            std::exchange(gathering_seen_, gathering) != gathering)
            gathers_for_ = 0;
        else
            gathers_for_ += std::min(passed, 2 * slice_);
        if (gathers_for_ > times_generous(job_.config.run.timeout))
            fail_with(ExitCode::PeerSilent,
                      "the ranks have not come together for {}: a message between them must be lost",
                      print_time(gathers_for_));
    }

    bool speaks() const { return plan_.map.own() == 0; }  // for all ranks

    // A thread that never comes back keeps the run.
    void start(std::size_t number) {
        const std::string name = fmt::format("device {}", own_[number]);
        threads_.push_back(start_thread(name, [this, self = shared_from_this(), number] {
            failure_.guard([&] { device_thread(number); });
            const std::lock_guard lock(ended_mutex_);
            ++ended_;
            has_ended_.notify_all();
        }));
    }

    // Joins all threads. Returns false when one is silent: then all are detached.
    bool end_threads() {
        Ns waited = 0;
        const auto all_ended = [&] { return ended_ == threads_.size(); };
        std::unique_lock lock(ended_mutex_);
        while (!has_ended_.wait_for(lock, slice_, all_ended)) {
            if (failure_.happened() && !silent_ && !limits_.task.empty())
                failure_.note([&] { check_devices(slice_); });
            if (silent_ && (waited += slice_) > SharedFailure::kGrace) {
                for (Thread& thread : threads_)
                    thread.detach();
                return false;
            }
        }
        lock.unlock();
        for (Thread& thread : threads_)
            thread.join();
        return true;
    }

    void check_devices(Ns passed) {
        try {
            plan_.monitor->check(limits_, passed);
        } catch (const Error&) {
            silent_ = true;
            throw;
        }
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
            record(own_[number], step, device.run_step(step));
            device.end_step();
            own.end_step();
            if (checkpoints_.is_due(step)) {
                checkpoints_.wait_until_made();
                own.keep_state();
            }
            wait_at(Phase::StepEnds);
        }
    }

    void wait_at(Phase phase) { phases_.arrive(static_cast<int>(phase)); }
    // While it waits it advances the pending checkpoint and checks the devices, unless the control connection does.
    void wait_monitoring(Phase phase) {
        constexpr Ns kOften = 2'000'000;
        Ns unwatched = 0;
        phases_.arrive(static_cast<int>(phase), checkpoints_.get_on() ? slice_ : kOften, [&](Ns passed) {
            checkpoints_.get_on();
            mailbox_->let_sleep(checkpoints_.is_at_work());
            if (failure_.has_control_connection() || (unwatched += passed) < slice_)
                return;
            check_devices(std::exchange(unwatched, 0));
        });
    }

    void record(int device, int step, const std::vector<Interval>& intervals) {
        const std::vector<Task>& order = job_.plan.order[device];
        std::vector<TraceEvent>& events = step_.events[device];
        events.reserve(order.size());
        for (std::size_t position = 0; position < order.size(); ++position) {
            const Task& task = order[position];
            const int version = version_of(task, job_.versions, job_.plan);
            // one version per step before this one
            const int earlier = job_.plan.asynchronous || !plan_.trains() ? 0 : step;
            events.push_back({step, device, plan_.map.own(), task, intervals[position].start, intervals[position].end,
                              plan_.moved[plan_.graph.node(device, static_cast<int>(position))],
                              version < 0 ? -1 : version + earlier, ahead_of(task, job_.versions)});
        }
        step_.memory[device] = devices_[device]->take_samples();
    }

    void clear_step() {
        step_.events.assign(devices_.size(), {});
        step_.memory.assign(devices_.size(), {});
    }

    void main_thread() {
        checkpoints_.open();
        wait_at(Phase::Prepared);
        together([&] { plan(); });
        const Bytes resident = work_->uses_cores() ? resident_memory() : 0;
        const std::vector<GpuUse> gpus = work_->gpus();
        wait_at(Phase::Planned);
        wait_at(Phase::Placed);
        together([&] {
            gathered_.places();
            checkpoints_.rehearse();
        });
        steps_begun_ = true;
        for (int step = 0; step < steps_; ++step) {
            const Ns start = clock_now();
            mailbox_->begin_step();
            mailbox_->let_sleep(checkpoints_.is_at_work());  // a waiting device leaves its core to it
            work_->begin_step(step);
            wait_at(Phase::StepBegins);
            wait_monitoring(Phase::StepEnds);
            together([&] { end_step(step); });
            if (options_.progress && speaks())
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
        together([&] { checkpoints_.get_done(); });
        if (resident > 0)
            resident_growth_ = resident_memory() - resident;
        gpus_ = work_->gpus();
        for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu)
            gpus_[gpu].grown = gpus_[gpu].used - gpus[gpu].used;
    }

    void take_checkpoint(int step) {
        together([&] { checkpoints_.get_done(); });  // the one before
        checkpoints_.take(step);
    }

    void end_step(int step) {
        stops_ = gathered_.step(step_, options_.should_stop && options_.should_stop());
        for (int update = 0; update < job_.plan.shape.updates(); ++update)
            losses_.push_back(loss_of(update));
        const std::vector<double> norms = work_->gradient_norms();
        norms_.insert(norms_.end(), norms.begin(), norms.end());
        work_->check_numbers(step);
        if (speaks())
            log_.add(step, std::move(step_));
        clear_step();
    }

    void plan() {
        const Costs costs = work_->prepare_memory();
        plan_memory(plan_, costs, options_.guarded);
        const bool copies = keeps_copies(costs, job_.config.transfer.early_receive());
        Mailbox::Options messages = plan_messages(plan_, costs, copies, work_->carrier());
        messages.spin = !cores_.shared;
        messages.payload = copies ? work_.get() : nullptr;
        limits_ = plan_limits(plan_, messages.link);
        auto mailbox = std::make_unique<Mailbox>(plan_.graph, std::move(messages));
        const std::lock_guard lock(mailbox_mutex_);
        mailbox_ = std::move(mailbox);
    }

    // Mean loss of the k-th mini-batch of the step, summed in micro-batch order.
    double loss_of(int update) const {
        const Shape& shape = job_.plan.shape;
        double sum = 0;
        for (int mb = shape.first_of(update); mb <= shape.last_of(update); ++mb)
            sum += work_->loss(mb);
        return sum / static_cast<double>(plan_.samples_of(update));
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
        if (!speaks())
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
                "the step of the median time is no longer kept: the one shown is the nearest to it that is");
        result.trace = trace();
        if (work_->uses_cores()) {
            result.disturbance.stolen = stolen_.share();
            result.disturbance.shared_cores = cores_.shared;
            std::ranges::move(warnings_of(result.disturbance), std::back_inserter(result.warnings));
        }
        return result;
    }

    Trace trace() const {
        Trace trace = trace_of(job_.plan);
        trace.label = "measured";
        trace.machine = work_->machine();
        trace.reserved = plan_.packing.arena;
        tell_config(trace, job_.config);
        log_.write(trace);
        return trace;
    }

    const Job& job_;
    const int steps_ = steps_of(job_);
    const Ns slice_ = ProgressMonitor::check_interval(job_.config.run.timeout);
    const RunOptions options_;
    const int done_ = steps_before(options_);
    const std::shared_ptr<Ranks> ranks_;
    RunPlan plan_;
    const std::vector<int> own_;  // devices of this rank
    std::unique_ptr<Devices> work_;
    const CorePlan cores_;
    const StolenTime stolen_;
    PhaseBarrier phases_;
    std::vector<std::unique_ptr<DeviceThread>> devices_;  // by device; null where another rank has it
    Gathering gathered_;
    std::atomic<int> gathering_{0};  // counts beginnings and ends: odd while the main thread waits for other ranks
    int gathering_seen_ = 0;         // by the control connection, as is
    Ns gathers_for_ = 0;
    Mutex mailbox_mutex_;
    std::unique_ptr<Mailbox> mailbox_;  // its thread ends before the devices' memory does
    ProgressMonitor::Limits limits_;
    StepRecord step_;  // under way; every device has its own rows
    StepLog log_;
    std::vector<double> losses_, norms_;  // by update
    std::optional<Bytes> resident_growth_;
    std::vector<GpuUse> gpus_;  // of this rank
    CheckpointsOfRun checkpoints_;
    bool stops_ = false;  // somebody wants it to
    std::optional<int> stopped_after_;
    std::vector<Thread> threads_;
    Mutex ended_mutex_;
    Condition has_ended_;
    std::size_t ended_ = 0;  // threads
    bool silent_ = false;    // a device is
    std::atomic<bool> steps_begun_{false};
    SharedFailure failure_;  // is destroyed first: its connection's thread uses all of the above
};

}  // namespace

RunResult run(const Job& job, const RunOptions& options) {
    check_runnable(job);
    if (options.whole_trace)
        check_whole_trace(job);
    if (!runs_on_ranks(job.config.run))
        return std::make_shared<Run>(job, options, ranks_of_process(false))->run();
    const Ns timeout = job.config.run.timeout;
    const std::string text = fmt::format("the other ranks have not come within {}", print_time(timeout));
    std::optional<Watchdog> until_all_watch;
    until_all_watch.emplace(timeout, text);
    const std::shared_ptr<Ranks> ranks = ranks_of_process(true);
    // Messages that MPI has taken get on only while somebody calls it, whatever the others wait for or compute.
    const Every progress(2'000'000, "progress between ranks", [&ranks] { ranks->get_on(); });
    check_ranks(job, *ranks);
    const auto whole = std::make_shared<Run>(job, options, ranks);
    until_all_watch.emplace(2 * timeout, text);  // rank 0 names a rank that does not call within one
    whole->open_control_connection();
    until_all_watch.reset();
    try {
        return whole->run();
    } catch (...) {
        ranks->keep(whole);  // other ranks may still read its memory
        throw;
    }
}

}  // namespace pw
