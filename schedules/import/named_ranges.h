// Ranges of time whose names are tasks, and the trace that they make together.
#pragma once

#include "schedules/import/task_patterns.h"
#include "schedules/trace/trace.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pw {

struct NamedRange {
    std::size_t file;             // among the paths
    std::string process, thread;  // as texts that are in their order
    NamedTask named;
    Ns start, end;
    std::string host = {};  // its name, empty if not known
};

// Returns a number as a text of fixed width, so that texts are in the order of their numbers.
std::string number_as_text(std::uint64_t number);

// Makes the trace of ranges. If any range of a file names a micro-batch, ranges of the file without a micro-batch are
// parts of tasks, or around them, and are left out. A device is a rank if all names have a rank. Otherwise it is a
// process, or a thread if all ranges are of the same process. A task that names no stage has the device's number as its
// stage. Throws Error (BadInput) as complete_names and trace_of_ranks do.
Trace trace_of_ranges(const std::vector<std::string>& paths, std::vector<NamedRange> ranges,
                      std::vector<std::string>& notes);

}  // namespace pw
