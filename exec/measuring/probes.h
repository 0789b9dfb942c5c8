// Probes of a plan: other plans over the same stages on the same devices, with other numbers of micro-batches. The
// times of their tasks calibrate the prediction of the plan, which never contains the plan's own times.
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

// Returns the probes of a job with kernels on the host, for `turns` turns: `alone` runs two steps in each, `near` two
// or three, or of an asynchronous job a whole plan of its share of the job's steps. In `alone` every holder of a stage
// has two micro-batches or more, so that it adds gradients to others. The probes do not train: their learning rate is
// 0.
Probes probes_of(const Job& job, int turns);

// Returns the largest number of turns, `wanted` at most, in which the probes take at most twice as long as the job's
// run, by the job's costs; 1 where even that takes longer.
int affordable_turns(const Job& job, int wanted);

}  // namespace pw
