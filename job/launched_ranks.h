// What a launcher of ranks (mpirun, srun) tells the processes that it starts.
#pragma once

#include "job/config/config.h"

namespace pw {

// Which rank this process is, and of how many; 0 of 1 without a launcher.
struct LaunchedRanks {
    int rank = 0, size = 1;
};
LaunchedRanks launched_ranks();
bool is_first_rank();  // which speaks and writes for all

// Returns whether the devices are shared out among the processes that a launcher has started.
bool runs_on_ranks(const RunConfig& run);

}  // namespace pw
