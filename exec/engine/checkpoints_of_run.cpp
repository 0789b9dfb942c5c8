#include "exec/engine/checkpoints_of_run.h"

#include <mutex>
#include <utility>

namespace pw {

int steps_before(const RunOptions& options) { return options.resumed ? options.resumed->checkpoint.step : 0; }

CheckpointsOfRun::CheckpointsOfRun(const RunPlan& plan, const RunOptions& options, Devices& work)
    : plan_(plan), options_(options), work_(work), writer_(options.checkpoints) {}

CheckpointsOfRun::~CheckpointsOfRun() {
    if (thread_.joinable())
        thread_.join();
}

bool CheckpointsOfRun::is_due(int step) const {
    const int every = options_.checkpoint_every;
    return options_.checkpoints != nullptr &&
           (step + 1 == steps_of(plan_.job) || (every > 0 && (step + 1 + steps_before(options_)) % every == 0));
}

bool CheckpointsOfRun::is_made() const {
    const std::lock_guard lock(mutex_);
    return is_made_;
}

void CheckpointsOfRun::wait_until_made() {
    std::unique_lock lock(mutex_);
    made_.wait(lock, [&] { return is_made_; });
}

void CheckpointsOfRun::open() {
    if (options_.checkpoints != nullptr && plan_.ranks.rank() == 0)
        options_.checkpoints->open(options_.resumed.get());
}

void CheckpointsOfRun::warm_up() {
    bool has_due_step = false;
    for (int step = 0; step + 1 < steps_of(plan_.job); ++step)
        has_due_step = has_due_step || is_due(step);
    if (!has_due_step)
        return;
    is_warm_up_ = true;
    take(-1);
    complete();
    is_warm_up_ = false;
}

void CheckpointsOfRun::take(int step) {
    if (options_.checkpoints == nullptr)
        return;
    work_.take_state();
    step_ = step;
    const std::lock_guard lock(mutex_);  // make() cannot end before it is released
    thread_ = start_thread("a checkpoint", [this] { make(); });
    is_made_ = false;
    is_taken_ = true;
}

void CheckpointsOfRun::make() {
    lower_priority();
    try {
        states_ = work_.make_state();
    } catch (...) {
        failure_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    is_made_ = true;
    made_.notify_all();
}

// If `urgent`, it may wait for this rank's threads, but never for other ranks.
bool CheckpointsOfRun::advance(bool urgent) {
    if (thread_.joinable()) {
        if (!urgent && !is_made())
            return false;
        thread_.join();
        if (failure_)
            std::rethrow_exception(std::exchange(failure_, nullptr));
        gather_.emplace(plan_.ranks, std::move(states_.message));
    }
    if (gather_) {
        if (!gather_->advance(urgent))
            return false;
        states_.messages = gather_->take_messages();
        gather_.reset();
        is_whole_ = plan_.ranks.rank() == 0;
    }
    if (is_whole_) {
        if (!urgent && !writer_.is_idle())
            return false;
        write();
        is_whole_ = false;
    }
    is_taken_ = false;
    return true;
}

void CheckpointsOfRun::complete() {
    constexpr Ns kBetweenPolls = 50'000;
    while (!advance(true))
        sleep_for(kBetweenPolls);
}

void CheckpointsOfRun::write() {
    const Setup& setup = plan_.job.setup;
    Checkpoint about;
    about.step = steps_before(options_) + (plan_.job.plan.asynchronous ? setup.training.steps : step_ + 1);
    about.samples = std::int64_t{about.step} * setup.pipeline.mini_batch;
    about.updates = plan_.updates_before(step_ + 1);
    about.optimizer = setup.training.optimizer;
    about.seed = setup.training.seed;
    about.model = setup.workload.model;
    about.config = setup.yaml;
    if (is_warm_up_)
        return work_.save(std::exchange(states_, {}), about);
    writer_.write([this, about, states = std::make_shared<DeviceStates>(std::exchange(states_, {}))] {
        Checkpoint checkpoint = about;
        work_.save(std::exchange(*states, {}), checkpoint);
        return checkpoint;
    });
}

}  // namespace pw
