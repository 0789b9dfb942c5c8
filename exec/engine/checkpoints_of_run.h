// The checkpoints of a run: after which steps there is one, and what it contains besides the devices' state.
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

// One is taken between steps, made on a thread that gives way to the devices, brought to rank 0 piece by piece, and
// written there on such a thread, too. Until that has begun no other can be taken.
class CheckpointsOfRun {
public:
    // Keeps references.
    CheckpointsOfRun(const Job& job, const RunOptions& options, Devices& work, Ranks& ranks);
    ~CheckpointsOfRun();

    bool is_due(int step) const;  // steps of this run, from 0
    void wait_until_made();       // on the devices' threads, before they keep their states for the next one

    // The following are for the main thread. open() makes sure, on rank 0, that this run may write them; throws as
    // CheckpointFolder::open() does. rehearse(), before the first step, does everything once but writing, for
    // which all ranks come together: the memory that it takes is there then. get_on() is called again and again between
    // take() and the next one: it does a little, never waits, and returns whether there is nothing left to do.
    // get_done() does all that is left; all ranks call it together.
    void open();
    void rehearse();
    void take(int step);
    bool get_on() { return get_on(false); }
    bool is_at_work() const { return is_taken_ || !writer_.is_idle(); }
    void get_done();
    // Waits until the last one is written. Returns which could not be.
    LostCheckpoints finish() { return writer_.finish(); }

private:
    void make();
    bool is_made() const;
    bool get_on(bool in_haste);
    void write();

    const Job& job_;
    const RunOptions& options_;
    Devices& work_;
    Ranks& ranks_;
    CheckpointWriter writer_;
    int step_ = 0;  // after which it was taken
    DeviceStates states_;
    mutable Mutex mutex_;
    Condition made_;
    bool is_made_ = true;
    std::exception_ptr failure_;
    bool is_rehearsal_ = false;
    bool is_taken_ = false;  // and there is something left for get_on()
    bool is_whole_ = false;  // on rank 0, and to be written
    std::optional<SlowGather> gather_;
    Thread thread_;  // uses all of the above
};

int steps_before(const RunOptions& options);  // that the run goes on from

}  // namespace pw
