// The error of a step time in parts, for people and for programs: sim/replay.h says what they are.
#pragma once

#include "report/report.h"
#include "job/job.h"
#include "sim/replay.h"

#include <string>
#include <vector>

namespace pw {

// Splits the error of a job's prediction. `beside` is the job simulated with costs measured beside the run, if any.
ErrorParts error_parts(const Job& job, const Trace& predicted, const Trace* calibrated, const Trace& measured);
// Does the same for two traces of one plan, which is that of the events. Throws Error when it cannot be proven.
ErrorParts error_parts(const Trace& predicted, const Trace& measured);

// A row per part, with a head: part, ms and % of the measured step.
std::vector<std::vector<std::string>> rows_of(const ErrorParts& parts);
std::string print(const ErrorParts& parts);
// Says in three sentences what the error comes from, the rest of it, and what to do.
std::string why(const ErrorParts& parts);
double mechanics_error(const ErrorParts& parts);  // as a part of the measured step
Json json_of(const ErrorParts& parts);

// Replays a measured trace, whoever made it: its mechanics alone, as JSON or as a table. `path` is for messages.
Json json_of_replay(const Report& measured);
std::string print_replay(const Report& measured);

}  // namespace pw
