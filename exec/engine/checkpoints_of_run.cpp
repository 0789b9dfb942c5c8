#include "exec/engine/checkpoints_of_run.h"

#include <mutex>
#include <utility>

namespace pw {

int steps_before(const RunOptions& options) { return options.resumed ? options.resumed->checkpoint.step : 0; }

CheckpointsOfRun::CheckpointsOfRun(const Job& job, const RunOptions& options, Devices& work, Ranks& ranks)
    : job_(job), options_(options), work_(work), ranks_(ranks), writer_(options.checkpoints) {}

CheckpointsOfRun::~CheckpointsOfRun() {
    if (thread_.joinable())
        thread_.join();
}

bool CheckpointsOfRun::is_due(int step) const {
    const int every = options_.checkpoint_every;
    return options_.checkpoints != nullptr &&
           (step + 1 == steps_of(job_) || (every > 0 && (step + 1 + steps_before(options_)) % every == 0));
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
    if (options_.checkpoints != nullptr && ranks_.rank() == 0)
        options_.checkpoints->open(options_.resumed.get());
}

void CheckpointsOfRun::rehearse() {
    bool is_worth_it = false;
    for (int step = 0; step + 1 < steps_of(job_); ++step)
        is_worth_it = is_worth_it || is_due(step);
    if (!is_worth_it)
        return;
    is_rehearsal_ = true;
    take(-1);
    get_done();
    is_rehearsal_ = false;
}

void CheckpointsOfRun::take(int step) {
    if (options_.checkpoints == nullptr)
        return;
    work_.take_state();
    step_ = step;
    const std::lock_guard lock(mutex_);  // make() ends after that
    thread_ = start_thread("a checkpoint", [this] { make(); });
    is_made_ = false;
    is_taken_ = true;
}

void CheckpointsOfRun::make() {
    give_way();
    try {
        states_ = work_.make_state();
    } catch (...) {
        failure_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    is_made_ = true;
    made_.notify_all();
}

// `in_haste` it may wait, but for other ranks.
bool CheckpointsOfRun::get_on(bool in_haste) {
    if (thread_.joinable()) {
        if (!in_haste && !is_made())
            return false;
        thread_.join();
        if (failure_)
            std::rethrow_exception(std::exchange(failure_, nullptr));
        gather_.emplace(ranks_, std::move(states_.message));
    }
    if (gather_) {
        if (!gather_->advance(in_haste))
            return false;
        states_.messages = gather_->take_messages();
        gather_.reset();
        is_whole_ = ranks_.rank() == 0;
    }
    if (is_whole_) {
        if (!in_haste && !writer_.is_idle())
            return false;
        write();
        is_whole_ = false;
    }
    is_taken_ = false;
    return true;
}

void CheckpointsOfRun::get_done() {
    constexpr Ns kLook = 50'000;
    while (!get_on(true))
        sleep_for(kLook);
}

void CheckpointsOfRun::write() {
    Checkpoint about;
    about.step = steps_before(options_) + (job_.plan.asynchronous ? job_.config.training.steps : step_ + 1);
    about.samples = std::int64_t{about.step} * job_.config.pipeline.mini_batch;
    about.seed = job_.config.training.seed;
    about.model = job_.config.workload.model;
    about.config = job_.config.yaml;
    if (is_rehearsal_)
        return work_.save(std::exchange(states_, {}), about);
    writer_.write([this, about, states = std::make_shared<DeviceStates>(std::exchange(states_, {}))] {
        Checkpoint checkpoint = about;
        work_.save(std::exchange(*states, {}), checkpoint);
        return checkpoint;
    });
}

}  // namespace pw
