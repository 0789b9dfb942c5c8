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
    int chunk = -1;  // of the model on its rank, where a name says so: `task.stage` is then the rank's place
};

// A device of the trace.
struct RecordedRank {
    std::string path;
    int rank = 0;
    std::vector<RecordedTask> tasks;
    std::string host = {};  // its name, empty if not known
};

enum class RankClocks {
    Running,    // all steps of a rank are on one clock
    FromSteps,  // every step of a rank begins at 0
};

inline constexpr int kNotNamed = -1;  // a micro-batch that is to be counted

// Completes tasks whose names leave out parts. Stages follow from the chunks of the model. A micro-batch that is
// kNotNamed is counted: the n-th forward of a stage in a step is of micro-batch n, and so is the n-th backward. Without
// steps, a task's n-th run is in step n. If micro-batches are counted, a step ends where all stages have run as many
// backwards as forwards. A note says what was counted. Throws Error (BadInput) with the file where the runs of a task
// overlap, or where chunks do not say which stages they are.
void complete_names(std::vector<RecordedRank>& ranks, bool has_steps, std::vector<std::string>& notes);

// Makes the trace of a pipeline, with a device for each rank in their order. A step that a rank lacks is left out, with
// a note. If a task of a rank begins before another rank has made its input, the rank is moved later, by the least time
// with which no task does so. With RankClocks::FromSteps every step is moved separately. A note names the rank. The
// trace has hosts if all ranks have hosts. Throws Error (BadInput) with the file where two files are of the same rank,
// two ranks run the same task, a stage is missing, or a task is missing.
Trace trace_of_ranks(std::vector<RecordedRank> ranks, RankClocks clocks, std::vector<std::string>& notes);

}  // namespace pw
