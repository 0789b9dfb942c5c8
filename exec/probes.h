// Probes of a plan: plans over the same stages on the same devices, in other orders and of other numbers of
// micro-batches. What their tasks take tells what those of the plan will take, and is never the plan's own time.
#pragma once

#include "job/job.h"

namespace pw {

// In `alone` a micro-batch goes through all stages and back before the next one comes, so that devices compute one
// after the other, as far as the stages allow. In `together` devices work on as many micro-batches at once as the plan
// holds, eight at most.
struct Probes {
    Job alone, together;
};

// Returns the probes of a job with kernels on the host. They run for `turns` turns, in each of which they compute about
// as many micro-batches as the job's run of as many turns. They learn nothing: their learning rate is 0.
Probes probes_of(const Job& job, int turns);

}  // namespace pw
