// The sequential run whose weights a plan must reproduce.
#pragma once

#include "job/job.h"

namespace pw {

// Returns the plan's sequential oracle on one device: it has the same micro-batches, groups of gradient sums and
// weight versions, and runs one task at a time.
Job oracle_of(const Job& job);

}  // namespace pw
