// The error of a step time in parts, for people and for programs. sim/replay.h defines the parts.
#pragma once

#include "job/job.h"
#include "report/measured_idle.h"
#include "report/report.h"
#include "report/trace_answers.h"
#include "sim/replay.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

// Splits the error of a job's prediction. `calibrated` is the job simulated with costs measured during the run, if any.
ErrorParts error_parts_of_run(const Job& job, const Trace& predicted, const Trace* calibrated, const Trace& measured);
// Does the same for two traces of the same plan, which the events give. Throws Error when the plan cannot be proven.
ErrorParts error_parts_of_traces(const Trace& predicted, const Trace& measured);

// A row per part, with a head: part, ms and % of the measured step.
std::vector<std::vector<std::string>> rows_of(const ErrorParts& parts);
std::string to_text(const ErrorParts& parts);
// Says in three sentences what the error comes from, the rest of the error, and what to do.
std::string why(const ErrorParts& parts);
double mechanics_error(const ErrorParts& parts);  // as a part of the measured step
Json to_json(const ErrorParts& parts);

// A measured trace of any program and its plan simulated with the times that its own tasks took.
struct ReplayedTrace {
    std::string plan_hash, schedule;
    int step = 0;                                 // the replayed step
    Ns step_time = 0;                             // measured
    Mechanics mechanics;                          // replayed less measured
    std::vector<std::string> devices;             // their names
    std::vector<Ns> work;                         // by stage: F B I W R of a micro-batch, the mean of the step
    std::optional<Explanation> explanation = {};  // of the replay, if asked for
    std::optional<TraceAnswers> answers = {};     // with the explanation
    std::optional<IdleTimes> idle = {};           // with the explanation: as measured
};
// Throws Error where the plan of the trace cannot be proven, or its events are not in the order of that plan.
ReplayedTrace replayed(const Report& measured, bool explained = false);
// Says in up to three sentences which stage is slow, its part of the critical path, and what equal stages would give.
// Needs the explanation.
std::string slow_stage_of(const ReplayedTrace& replay);
Json to_json(const ReplayedTrace& replay);
std::string to_text(const ReplayedTrace& replay);

}  // namespace pw
