// Checks of a plan before a run begins.
#pragma once

#include "job/job.h"
#include "schedules/plan/plan.h"

namespace pw {

// Throws Error (BadInput) if the plan needs something that no backend of this build does.
void check_runnable(const Job& job);
// Throws Error (BadInput) if a trace of all steps takes too much memory. Every task of a step has an event, which
// is copied once.
void check_whole_trace(const Job& job);
// The part of check_runnable() that profiles need too: checks that the backend has kernels for the precision.
void check_kernels(const Setup& setup);
// The part of check_runnable() that needs no job: checks that the transport `link` can carry everything that the
// plan moves.
void check_link(const Setup& setup, const Shape& shape);

}  // namespace pw
