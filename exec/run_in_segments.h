// An asynchronous training in segments: between two segments the pipeline is empty and all stages have one version
// of their weights, which a checkpoint can store.
#pragma once

#include "exec/execute.h"

#include <functional>

namespace pw {

// Runs the job's steps in segments that end at multiples of `checkpoint_every`, each as a run of its own that
// resumes from the preceding checkpoint. `made_of` turns the job of a segment into the job to run. The result has
// the losses and norms of all segments. All remaining members are from the last segment. Throws as run() does, and
// Error (RunFailed) if a checkpoint could not be written.
RunResult run_in_segments(
    const Job& job, const RunOptions& options,
    const std::function<Job(const Job&)>& made_of = [](const Job& segment) { return segment; });

}  // namespace pw
