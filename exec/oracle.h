// The run that the weights of a plan are compared with.
#pragma once

#include "job/job.h"

namespace pw {

// Returns the plan's sequential oracle on one device: it has the same micro-batches, the same grouping of gradient sums
// and the same weight versions, and runs one task at a time.
Job oracle_of(const Job& job);

}  // namespace pw
