// What the ranks of a run tell each other between its phases, so that rank 0 has the records of all of them on one
// clock.
#pragma once

#include "exec/engine/device.h"
#include "exec/engine/step_log.h"
#include "exec/execute.h"
#include "exec/ranks/ranks.h"

#include <vector>

namespace pw {

// The clocks of the ranks beside that of rank 0, measured again every few seconds.
class Clocks {
public:
    void take(std::vector<ClockOffset> offsets);  // by rank; on the other ranks there is nothing to take
    bool are_old() const;
    // Puts times of a rank on the clock of rank 0.
    void translate(int rank, std::vector<TraceEvent>& events, std::vector<MemorySample>& memory) const;
    Ns error() const { return error_; }  // the largest seen, with the drift between two measurements

private:
    std::vector<ClockOffset> offsets_;
    Ns taken_ = 0, error_ = 0;
};

// All ranks call its functions together, on their main threads. Where all devices are in one process they do nothing.
class Gathering {
public:
    Gathering(const RunPlan& plan, Devices& work);

    void places();  // when devices have their memory: other ranks may have to know where
    // All ranks know the losses and norms of the step, and rank 0 its events and memory. Returns whether a rank
    // `stops`.
    bool step(StepRecord& step, bool stops);
    // Rank 0 knows what `result` says of the devices of all ranks: peaks, shares of cores, resident memory, hosts.
    void result(RunResult& result) const;

private:
    const RunPlan& plan_;
    Devices& work_;
    const std::vector<int> own_;     // devices of this rank
    std::vector<int> other_clocks_;  // ranks that do not read the clock of rank 0
    Clocks clocks_;
};

}  // namespace pw
