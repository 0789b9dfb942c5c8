// The rank that a launcher (mpirun, srun) has assigned to this process.
#pragma once

#include "job/setup/setup.h"

namespace pw {

// The rank of this process and the number of ranks: 0 of 1 without a launcher.
struct LaunchedRanks {
    int rank = 0, size = 1;
};
LaunchedRanks launched_ranks();
bool is_first_rank();  // rank 0 prints and writes for all

// Returns whether the devices are distributed over the processes that a launcher started.
bool runs_on_ranks(const RunConfig& run);

}  // namespace pw
