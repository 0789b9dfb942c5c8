// Traces in files.
#pragma once

#include "schedules/trace/trace.h"

#include <string>
#include <string_view>
#include <vector>

namespace pw {

// Writes Chrome/Perfetto JSON: one process per device with separate threads for tasks, sends, receives and the
// optimizer, flow arrows from SEND to RECV, and memory as counter events.
void write_trace(const Trace& trace, const std::string& path);
// Reads a trace that write_trace wrote, exact to the nanosecond. Throws Error (BadInput) with file and position.
Trace read_trace(const std::string& path);
// Reads a measured trace of any program whose task events have our `args`; everything else may be missing. Unless
// write_trace wrote it, its events are put in list order as put_in_list_order() does.
Trace read_foreign_trace(const std::string& path);
// Reads a trace of any program, in one of the formats of trace_forms.cpp; several files are those of its ranks, in any
// order. Adds to `notes` what people should know of it. Throws Error (BadInput) with file and position.
Trace read_any_trace(const std::vector<std::string>& paths, std::vector<std::string>& notes);
// Returns whether the file is from one rank of several.
bool is_of_one_rank(const std::string& path);
// Returns whether a file that begins so is a trace in a format that is not Chrome's.
bool begins_as_trace(std::string_view beginning);

// Checks that it is the trace of a plan: every stage is on a device; every compute task runs once in every step, on a
// device that holds its stage; no two overlap; none starts before its inputs. Throws Error (BadInput) with file, task
// and fact.
void check_trace(const Trace& trace, const std::string& path);

}  // namespace pw
