// Mistakes of a setup that show when its plan is made. All functions throw Error (BadInput) at the key that caused
// them, with a help for this setup.
#pragma once

#include "job/plan.h"
#include "job/setup/setup.h"
#include "schedules/orders/schedule.h"
#include "workloads/error.h"

namespace pw {

// A split whose number of stages does not fit the devices is a mistake unless pipeline.stages confirms it. With
// replicas the number of devices follows from the replicas.
void check_stages(const Setup& setup, const Schedule& schedule, const Shape& shape);
// Schedules that update after every micro-batch need micro-batches of one size.
void check_mini_batch(const Setup& setup, const Schedule& schedule);
// If the replicas divide a mini-batch evenly, each of them has micro-batches, and the mini-batch ends with a step.
void check_even_share(const Setup& setup, const Schedule& schedule, const Shape& shape, int steps);
// With ZeRO-2 and 3 the devices of a stage exchange gradients or weights in each pass, and must run the same passes at
// the same time: all stages need equally many replicas, and all replicas equally many micro-batches.
void check_zero(const Setup& setup, const Schedule& schedule, const Shape& shape);
// Throws the error of a schedule about a plan.
[[noreturn]] void refuse_plan(const Setup& setup, const StageLinks& links, const Schedule& schedule, const Shape& shape,
                              const Error& error);

bool clips_gradients(const Setup& setup);

}  // namespace pw
