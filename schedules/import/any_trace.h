// Traces of any program in files.
#pragma once

#include "schedules/trace/trace.h"

#include <string>
#include <string_view>
#include <vector>

namespace pw {

// Reads a trace of any program, in one of the formats of trace_forms.cpp; several files are those of its ranks, in any
// order. `patterns` describe names of tasks, as in 'fwd_mb{mb}_stage{stage}', where names are a program's own. Adds to
// `notes` what people should know of it. Throws Error (BadInput) with file and position, and with a pattern that no
// name matches.
Trace read_any_trace(const std::vector<std::string>& paths, std::vector<std::string>& notes,
                     const std::vector<std::string>& patterns = {});
// Returns whether the file is from one rank of several.
bool is_of_one_rank(const std::string& path);
// Returns whether a file that begins so is a trace in a format that is not Chrome's.
bool begins_as_trace(std::string_view beginning);

}  // namespace pw
