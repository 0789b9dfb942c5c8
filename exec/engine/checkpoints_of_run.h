// The checkpoints of a run: after which steps there is one, and what it says beside what the devices have.
#pragma once

#include "exec/checkpoint/checkpoint.h"
#include "exec/engine/device.h"
#include "exec/execute.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

// Its functions but is_due() are for the main thread, in this order: take() between steps; gather(), which all ranks
// call together, and write(), on rank 0, while the devices do the next step or have ended.
class CheckpointsOfRun {
public:
    // Keeps references to all three.
    CheckpointsOfRun(const Job& job, const RunOptions& options, Devices& work);

    bool is_due(int step) const;  // steps of this run, from 0
    void take(int step);
    bool has_taken() const { return taken_after_.has_value(); }
    void gather();
    void write();
    // Waits until the last one is written. Returns why some could not be.
    std::vector<std::string> finish() { return writer_.finish(); }

private:
    const Job& job_;
    const RunOptions& options_;
    Devices& work_;
    std::optional<int> taken_after_;
    Checkpoint gathered_;
    CheckpointWriter writer_;
};

int steps_before(const RunOptions& options);  // that the run goes on from

}  // namespace pw
