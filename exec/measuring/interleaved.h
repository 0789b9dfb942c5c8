// A run in turns with the probes of its plan: what the machine's speed does in the meantime, it does to both.
#pragma once

#include "exec/execute.h"
#include "exec/measuring/calibrate.h"
#include "exec/measuring/yardstick.h"

namespace pw {

// An asynchronous plan, which is a single step, runs whole in the middle one of this many turns.
inline constexpr int kTurnsOfARun = 8;

struct InterleavedRun {
    std::vector<RunResult> runs;  // one, its trace without the first step of every turn; of an asynchronous job all
    Calibration calibration;
    int turns = 0;
    Yardstick yardstick;  // before, between and after the turns
};

// Tells whether the job's backend can be calibrated so: its kernels compute on the cores of the devices' threads.
bool can_interleave(const Job& job);

// Runs the job in `turns` turns, fewer where it has fewer than two steps for each. Ranks call it together; rank 0 alone
// gets traces and a calibration. Once options.should_stop returns true, the job and its probes end after their next
// step. Throws Error (RunFailed) where they have not run enough by then to calibrate anything.
InterleavedRun run_interleaved(const Job& job, int turns, const RunOptions& options);

}  // namespace pw
