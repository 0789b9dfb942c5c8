#include "exec/run_in_segments.h"

#include "exec/checkpoint/checkpoint.h"
#include "job/plan.h"
#include "workloads/error.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

namespace pw {

namespace {

// The job of `steps` steps after the first `done` of the run.
Job with_steps(const Job& job, int done, int steps) {
    Job segment = job;
    segment.setup.training.steps = steps;
    segment.setup.training.anneal_steps = anneal_steps_of(job);
    Setup left = segment.setup;
    left.pipeline.options.synchronous_steps = std::max(0, left.pipeline.options.synchronous_steps - done);
    ProvenPlan proven =
        proven_plan(left, links_of(job.model->layers, job.split), steps, [&](const Shape&) { return job.costs; });
    return with_plan(std::move(segment), std::move(proven));
}

std::shared_ptr<const FoundCheckpoint> checkpoint_after(int step, const RunOptions& options, const RunResult& result) {
    if (!result.lost_checkpoint.empty())
        fail_with(ExitCode::RunFailed, "{}", result.lost_checkpoint);
    std::vector<std::string> left_out;
    FoundCheckpoint found = find_checkpoint(options.checkpoints->root(), left_out, step + 1);
    if (found.checkpoint.step != step)
        fail_with(ExitCode::RunFailed, "there is no checkpoint of step {} to resume from: {}", step,
                  fmt::join(left_out, "; "));
    return std::make_shared<const FoundCheckpoint>(std::move(found));
}

void append(std::vector<double>& all, const std::vector<double>& more) {
    all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

RunResult run_in_segments(const Job& job, const RunOptions& options, const std::function<Job(const Job&)>& made_of) {
    const int every = options.checkpoint_every;
    const int start = options.resumed ? options.resumed->checkpoint.step : 0;
    int done = start;
    const int end = done + job.setup.training.steps;
    std::vector<double> losses, norms;
    RunOptions own = options;
    own.checkpoint_every = 0;
    for (;;) {
        const int next = std::min(end, (done / every + 1) * every);
        const auto joined = [&](RunResult result) {
            result.losses.insert(result.losses.begin(), losses.begin(), losses.end());
            result.gradient_norms.insert(result.gradient_norms.begin(), norms.begin(), norms.end());
            result.stopped_after = next < end ? std::optional<int>(next) : std::nullopt;
            return result;
        };
        if (options.progress)
            own.progress = [&](Progress progress) {
                progress.step = next;
                progress.steps = end;
                options.progress(progress);
            };
        if (options.finished)
            own.finished = [&](const RunResult& result) {
                if (next == end || result.asked_to_stop)
                    options.finished(joined(result));
            };
        RunResult result = run(made_of(with_steps(job, done - start, next - done)), own);
        if (next == end || result.asked_to_stop)
            return joined(std::move(result));
        append(losses, result.losses);
        append(norms, result.gradient_norms);
        own.resumed = checkpoint_after(next, options, result);
        own.dump.clear();  // the dump is of the first mini-batch
        done = next;
    }
}

}  // namespace pw
