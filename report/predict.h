// A job, simulated.
#pragma once

#include "job/job.h"
#include "sim/metrics.h"
#include "sim/simulate.h"

namespace pw {

// Returns the predicted trace of the job's plan under its costs, with the trace's facts from the setup. Throws Error:
// BadInput if the costs are not of training.precision or exceed the limits of integers, at their keys; Infeasible if
// the plan deadlocks.
Trace predict(const Job& job);

// Returns the mode of the job's plan under its costs.
TransferMode simulated_mode(const Job& job);

// Returns the simulator of the job's plan, under its costs or other costs.
Simulator simulator_of(const Job& job);

// The metrics of the predicted trace, and the trace without events and memory: a plan may have too many tasks for
// these.
struct PredictedNumbers {
    Trace head;
    Metrics metrics;
};
PredictedNumbers predict_numbers(const Job& job);

}  // namespace pw
