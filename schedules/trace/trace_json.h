// Traces in files.
#pragma once

#include "schedules/trace/trace.h"

#include <string>

namespace pw {

// Writes Chrome/Perfetto JSON: a process per device with separate threads for tasks, sends, receives and the optimizer,
// flow arrows from SEND to RECV, and memory as counter events.
void write_trace(const Trace& trace, const std::string& path);
// Reads a trace that write_trace wrote, exact to the nanosecond. Throws Error (BadInput) with file and position.
Trace read_trace(const std::string& path);
// Reads a measured trace of any program whose task events have our `args`. Everything else may be missing. Unless
// write_trace wrote it, its events are put in list order as put_in_list_order() does.
Trace read_foreign_trace(const std::string& path);

// Checks that it is the trace of a plan: every stage is on a device. Every compute task runs once in every step, on a
// device that holds its stage. No two overlap. No task starts before its inputs. Throws Error (BadInput) with file,
// task and fact.
void check_trace(const Trace& trace, const std::string& path);

}  // namespace pw
