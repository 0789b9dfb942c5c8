// The tasks that each rank of another program recorded, and the trace that they make together.
#pragma once

#include "schedules/trace/trace.h"

#include <string>
#include <vector>

namespace pw {

struct RecordedTask {
    Task task;
    Ns start, end;  // on the clock of its rank
    int step = 0;
};

// A device of the trace.
struct RecordedRank {
    std::string path;
    int rank = 0;
    std::vector<RecordedTask> tasks;
};

enum class RankClocks {
    Running,    // all steps of a rank are on one clock
    FromSteps,  // every step of a rank begins at 0
};

// Numbers the steps of tasks that do not have one: the n-th run of a task is in step n.
void number_by_runs(std::vector<RecordedTask>& tasks);

// Makes the trace of a pipeline, with a device for each rank in their order. A step that a rank lacks is left out, with
// a note. A rank whose task begins before another rank has made its input is moved later, by the least time with which
// no task does; with RankClocks::FromSteps in every step for itself. A note says which. Throws Error (BadInput) with
// the file where two files are of one rank, two ranks run one task, a stage is missing, or a task is.
Trace trace_of_ranks(std::vector<RecordedRank> ranks, RankClocks clocks, std::vector<std::string>& notes);

}  // namespace pw
