// The checkpoints of a run: the steps after which they are taken, and their contents besides the devices' states.
#pragma once

#include "exec/checkpoint/checkpoint_writer.h"
#include "exec/engine/device.h"
#include "exec/execute.h"
#include "exec/ranks/slow_gather.h"
#include "exec/system/threads.h"

#include <exception>
#include <optional>
#include <vector>

namespace pw {

// A checkpoint is taken between steps, made on a thread of low priority, sent to rank 0 piece by piece, and written
// there on another thread of low priority. The next checkpoint can be taken once this writing has begun.
class CheckpointsOfRun {
public:
    // Keeps references.
    CheckpointsOfRun(const RunPlan& plan, const RunOptions& options, Devices& work);
    ~CheckpointsOfRun();

    bool is_due(int step) const;  // `step` counts the steps of this run, from 0
    void wait_until_made();       // called on the devices' threads, before they keep their next states

    // The following are for the main thread. open() opens the folder on rank 0, and throws as
    // CheckpointFolder::open() does. warm_up(), before the first step, does everything once except the writing, so
    // that all memory is allocated. All ranks call it together. advance() is called repeatedly between two calls of
    // take(): it does a part of the work, never waits, and returns whether all is done. complete() does the rest of
    // the work. All ranks call it together.
    void open();
    void warm_up();
    void take(int step);
    bool advance() { return advance(false); }
    bool is_busy() const { return is_taken_ || !writer_.is_idle(); }
    void complete();
    // Waits until the last checkpoint is written. Returns the checkpoints that could not be written.
    LostCheckpoints finish() { return writer_.finish(); }

private:
    void make();
    bool is_made() const;
    bool advance(bool urgent);
    void write();

    const RunPlan& plan_;
    const RunOptions& options_;
    Devices& work_;
    CheckpointWriter writer_;
    int step_ = 0;  // the step after which the checkpoint was taken
    DeviceStates states_;
    mutable Mutex mutex_;
    Condition made_;
    bool is_made_ = true;
    std::exception_ptr failure_;
    bool is_warm_up_ = false;
    bool is_taken_ = false;  // and advance() still has work
    bool is_whole_ = false;  // all parts are on rank 0, and are to be written
    std::optional<SlowGather> gather_;
    Thread thread_;  // uses all of the above
};

int steps_before(const RunOptions& options);  // steps of the checkpoint that the run resumes from (none: 0)

}  // namespace pw
