// Probes of a plan: other plans over the same stages on the same devices, with other numbers of micro-batches. What
// their tasks take tells what those of the plan will take, and is never the plan's own time.
#pragma once

#include "job/job.h"

namespace pw {

// In `alone` a micro-batch goes through all stages and back before the next one comes, so that devices compute one
// after the other, as far as the stages allow. `near` is the plan's own schedule with the next number of micro-batches
// that it takes: what a task takes depends on those before it, by what they leave in the caches, and on whether the
// device has just waited. A plan from a file has no such next one; there devices work on as many micro-batches at once
// as the plan holds, eight at most.
struct Probes {
    Job alone, near;
};

// Returns the probes of a job with kernels on the host. They run for `turns` turns: `alone` two steps in each, `near`
// as many as the job. They learn nothing: their learning rate is 0.
Probes probes_of(const Job& job, int turns);

}  // namespace pw
