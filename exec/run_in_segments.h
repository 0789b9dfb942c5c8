// An asynchronous training in pieces: between two of them its pipeline has run empty, and all stages have their weights
// in one version, which a checkpoint can hold.
#pragma once

#include "exec/execute.h"

#include <functional>

namespace pw {

// Does the job's steps in pieces that end at multiples of `checkpoint_every`, each as a run of its own that goes on
// from the checkpoint of the one before. `made_of` makes what runs of a piece's job, where that is another one. The
// result has the losses and norms of all pieces, and all else of the last. Throws as run() does, and Error (RunFailed)
// when a checkpoint could not be written.
RunResult run_in_pieces(
    const Job& job, const RunOptions& options,
    const std::function<Job(const Job&)>& made_of = [](const Job& piece) { return piece; });

}  // namespace pw
