// The exchange of data between the ranks of a run: rank 0 gets the records of all ranks, on one clock.
#pragma once

#include "exec/engine/clocks.h"
#include "exec/engine/device.h"
#include "exec/engine/step_log.h"
#include "exec/execute.h"
#include "exec/ranks/ranks.h"

#include <vector>

namespace pw {

// All ranks call these functions together, on their main threads.
class Gathering {
public:
    Gathering(const RunPlan& plan, Devices& work);

    void exchange_addresses();  // called when devices have their memory
    // Gives all ranks the losses and norms of the step, and rank 0 its events and memory. Returns whether a rank
    // `stops`.
    bool step(StepRecord& step, bool stops);
    // Completes `result` on rank 0 for the devices of all ranks: peaks, shares of cores, memory in use, hosts.
    void result(RunResult& result) const;

private:
    void join_messages(StepRecord& step);

    const RunPlan& plan_;
    Devices& work_;
    const std::vector<int> own_;      // devices of this rank
    std::vector<int> between_ranks_;  // RECVs, nodes, whose messages come from another rank
    std::vector<int> other_clocks_;   // ranks that do not read the clock of rank 0
    Clocks clocks_;
};

}  // namespace pw
