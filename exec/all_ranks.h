// What all ranks of a launcher do together, beside runs and between them.
#pragma once

#include "job/config.h"

#include <functional>

namespace pw {

// All ranks call it, each with its part; with another transport than mpi, or on one rank, it only calls `act`. What one
// throws ends all of them: the others throw StoppedByOthers. A rank that is gone, or silent for longer than
// `run.timeout`, is named; one whose main thread works or waits is not silent. It returns on rank 0 when its own part
// is done, on the others when that of rank 0 is, too.
void with_all_ranks(const Config& config, const std::function<void()>& act);

}  // namespace pw
