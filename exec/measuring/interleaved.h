// A run in turns with the probes of its plan: changes of the machine's speed affect both alike.
#pragma once

#include "exec/execute.h"
#include "exec/measuring/calibrate.h"
#include "exec/measuring/reference_work.h"

namespace pw {

// An asynchronous plan, which is a single step, runs completely in the middle turn of this many turns.
inline constexpr int kTurnsOfARun = 8;

struct InterleavedRun {
    // A single result, whose trace has no first steps of turns. An asynchronous job has a result per run.
    std::vector<RunResult> runs;
    ProbedCosts calibration;
    int turns = 0;
    ReferenceWork reference_work;  // before, between and after the turns
};

// Returns whether the job's backend can be calibrated in this way: its kernels must compute on the cores of the
// devices' threads. Probes have whole micro-batches, so that plans of slices have none.
bool can_interleave(const Job& job);

// Runs the job in `turns` turns, or in fewer so that each has at least two steps. All ranks call it together. Only
// rank 0 gets traces and a calibration. After options.should_stop has returned true, the job and its probes end after
// their next step. Throws Error (RunFailed) if they have then run too few steps to calibrate.
InterleavedRun run_interleaved(const Job& job, int turns, const RunOptions& options);

}  // namespace pw
