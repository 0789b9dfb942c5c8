// What the tasks of a plan cost, from the traces of its probes (exec/measuring/probes.h).
#pragma once

#include "job/job.h"

#include <vector>

namespace pw {

struct ProbeTrace {
    const Job* job;
    // One of all its steps, or of the first of them where the run was stopped; of an asynchronous job one for each
    // turn.
    std::vector<Trace> traces;
    int turns;
};

// What the tasks of one operation of a stage took in the probes.
struct TaskTimes {
    Op op;
    int stage;
    int samples;  // tasks
    Ns mean;
    Ns deviation;            // standard
    double autocorrelation;  // of one task and the next of its kind: near 1 where the machine's speed drifts
};

struct Calibration {
    Costs costs;  // in place of the job's
    std::vector<TaskTimes> tasks;
};

// Times are means over all tasks of the steps in the middle: by the times of their probes' steps, a quarter at either
// end is left out, as the median of measured steps leaves out what disturbs some. `stage` and `busy` are the ends of a
// straight line through the times over the part of the time in which other devices computed; `dispatch` is the time
// between a task and the next that waits for nothing else, and the link's latency what a task waits longer whose input
// another device has just made. On ranks messages take the job's links, whose latencies are longer by what a task waits
// when its input has come.
Calibration calibrate(const Job& job, const std::vector<ProbeTrace>& probes);

}  // namespace pw
