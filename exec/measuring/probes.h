// Probes of a plan: plans with the same stages on the same devices, with different numbers of micro-batches. The
// times of their tasks calibrate the prediction of the plan, so that it never contains the plan's own times.
#pragma once

#include "job/job.h"

namespace pw {

// In `alone` a micro-batch goes through all stages and back before the next micro-batch begins, so that devices
// compute in sequence, as far as the stages allow. `near` is the plan's own schedule with the next number of
// micro-batches that it accepts, since the time of a task depends on the contents that earlier tasks leave in the
// caches, and on whether the device has just waited. A plan from a file has no next number. Its devices then have
// the plan's number of micro-batches in flight, eight at most.
struct Probes {
    Job alone, near;
};

// Returns the probes of a job with kernels on the host, for `turns` turns. `alone` runs two steps per turn, `near`
// two or three. For an asynchronous job `near` runs a whole plan with its share of the job's steps. In `alone`
// every holder of a stage has two micro-batches or more, so that it also adds to gradients. The probes do not
// train: their learning rate is 0.
Probes probes_of(const Job& job, int turns);

// Returns the largest number of turns, `wanted` at most, with which the probes take at most twice the time of the
// job's run, by the job's costs, or 1 if a single turn already takes longer.
int affordable_turns(const Job& job, int wanted);

}  // namespace pw
