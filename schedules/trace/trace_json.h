// Traces in files.
#pragma once

#include "schedules/trace/trace.h"

#include <string>
#include <vector>

namespace pw {

// Writes Chrome/Perfetto JSON: one process per device; tasks, sends, receives and the optimizer on threads of their
// own, flow arrows from SEND to RECV, memory as counter events.
void write_trace(const Trace& trace, const std::string& path);
// Reads what write_trace wrote, to the nanosecond. Throws Error (BadInput) naming file and position.
Trace read_trace(const std::string& path);
// Reads a measured trace whoever wrote it, when the events of tasks have our `args`: all else may be missing. One that
// write_trace did not write is put in list order, as put_in_list_order() does.
Trace read_foreign_trace(const std::string& path);
// Reads a trace of any program: one that pipewright wrote, one of tasks with our `args`, or the files of
// torch.profiler, one per rank, in any order. Throws Error (BadInput) naming file and position.
Trace read_any_trace(const std::vector<std::string>& paths);
// Returns whether the file is that of one rank of several.
bool is_of_one_rank(const std::string& path);

// Checks that it is the trace of a plan: every stage on a device, every compute task once in every step on a device
// that holds its stage, no two at once, none before its inputs. Throws Error (BadInput) naming file, task and fact.
void check_trace(const Trace& trace, const std::string& path);

}  // namespace pw
