// The costs of a plan's tasks, from the traces of its probes (exec/measuring/probes.h).
#pragma once

#include "job/job.h"

#include <vector>

namespace pw {

struct ProbeTrace {
    const Job* job;
    // A trace of all steps, or of the first steps if the run was stopped. An asynchronous job has a trace per turn.
    std::vector<Trace> traces;
    int turns;
};

// The times of the tasks of an operation of a stage in the probes.
struct TaskTimes {
    Op op;
    int stage;
    int samples;  // number of tasks
    Ns mean;
    Ns deviation;            // standard
    double autocorrelation;  // of a task and the next of its kind: near 1 if the machine's speed drifts
};

struct ProbedCosts {
    Costs costs;  // replace the costs of the job
    std::vector<TaskTimes> tasks;
};

// Times are means over all tasks of the middle steps: of the steps of each probe, the fastest and the slowest
// quarter are left out, as disturbed steps do not change the median of measured steps. `stage` and `busy` are the
// ends of a straight line through the times over the load, the part of the time in which other devices computed.
// `dispatch` is the time between a task and the next task if the next task waits for nothing else. The link's latency
// is the additional time if the next task waits for an input from another device. On ranks messages have the job's
// links. Their latencies are increased by the time between the arrival of an input and the start of its task.
ProbedCosts calibrate(const Job& job, const std::vector<ProbeTrace>& probes);

}  // namespace pw
