// What a run can do: the checks before it begins.
#pragma once

#include "job/job.h"
#include "schedules/plan/plan.h"

namespace pw {

// Throws Error (BadInput) when the plan asks for what no backend of this build does.
void check_runnable(const Job& job);
// Throws the same when a trace of all steps, every task of which leaves an event that is copied once, takes too much
// memory.
void check_whole_trace(const Job& job);
// This is the part of check_runnable() that needs no job: it checks that the transport `link` carries all that the plan
// moves.
void check_link(const Config& config, const Shape& shape);

}  // namespace pw
