#include "exec/engine/checkpoints_of_run.h"

#include <utility>

namespace pw {

int steps_before(const RunOptions& options) { return options.resumed ? options.resumed->step : 0; }

CheckpointsOfRun::CheckpointsOfRun(const Job& job, const RunOptions& options, Devices& work)
    : job_(job), options_(options), work_(work), writer_(options.checkpoints, options.keep) {}

bool CheckpointsOfRun::is_due(int step) const {
    const int every = options_.checkpoint_every;
    return !options_.checkpoints.empty() &&
           (step + 1 == steps_of(job_) || (every > 0 && (step + 1 + steps_before(options_)) % every == 0));
}

void CheckpointsOfRun::take(int step) {
    if (options_.checkpoints.empty())
        return;
    work_.take_state();
    taken_after_ = step;
}

void CheckpointsOfRun::gather() {
    const int step = *std::exchange(taken_after_, std::nullopt);
    gathered_ = {};
    work_.save(gathered_);
    gathered_.step = steps_before(options_) + (job_.plan.asynchronous ? job_.config.training.steps : step + 1);
    gathered_.samples = std::int64_t{gathered_.step} * job_.config.pipeline.mini_batch;
    gathered_.seed = job_.config.training.seed;
    gathered_.model = job_.config.workload.model;
    gathered_.config = job_.config.yaml;
}

void CheckpointsOfRun::write() { writer_.write(std::exchange(gathered_, {})); }

}  // namespace pw
