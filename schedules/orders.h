// The order rules of the schedules: the compute tasks of one device, in order. They are pure functions
// of the shape. Rules and their sources: docs/schedules.md.
#pragma once

#include "schedules/schedule.h"

#include <functional>

namespace pw {

using Tasks = std::vector<Task>;

// The tasks of these schedules are all forwards and full backwards.
Tasks naive(const Shape& shape, int device, const ScheduleOptions& options);
Tasks gpipe(const Shape& shape, int device, const ScheduleOptions& options);
Tasks one_f_one_b(const Shape& shape, int device, const ScheduleOptions& options);
Tasks eager_one_f_one_b(const Shape& shape, int device, const ScheduleOptions& options);
Tasks interleaved(const Shape& shape, int device, const ScheduleOptions& options);
Tasks breadth_first(const Shape& shape, int device, const ScheduleOptions& options);
Tasks forward_only(const Shape& shape, int device, const ScheduleOptions& options);
Tasks double_buffered(const Shape& shape, int device, const ScheduleOptions& options);

// These schedules split the backward into I, for inputs, and W, for weights.
Tasks zb_h1(const Shape& shape, int device, const ScheduleOptions& options);
Tasks zb_h2(const Shape& shape, int device, const ScheduleOptions& options);
Tasks zb1p(const Shape& shape, int device, const ScheduleOptions& options);
Tasks zb_v(const Shape& shape, int device, const ScheduleOptions& options);

// Return how many of its own micro-batches a device of `stage` runs ahead of, or lags behind, those around it, `times`
// over: p - 1 - d and d where every stage has one device. The r holders of a stage share the micro-batches: of R
// devices in all, with q before the stage, each runs (R - 1 - q) / r ahead (PipeDream's 1F1B-RR). No circle of waits
// comes of it. With a ahead, F(s, i), the forward of micro-batch i on stage s, waits for the backward B(s, i - (a + 1)
// r) and no later one; B(s, i) waits for F(s, i + a' r') at most, which stage s' behind it runs first; and a' r' < (a +
// 1) r.
int share_ahead(const Shape& shape, int stage, int times = 1);
int share_behind(const Shape& shape, int stage, int times = 1);

// A device with several stages takes turns: it runs groups of micro-batches, in a group stage after stage, backwards in
// the opposite order of stages. `ahead` forwards, then one forward and one backward in turn.
using BackwardOf = std::function<void(int stage, int microbatch)>;
void take_turns(const Shape& shape, int device, int group, int ahead, Tasks& order, const BackwardOf& backward);

// Returns the micro-batches per group: without options.group by PyTorch's rule, with it by Megatron's; throws Error
// (BadInput) with the nearest legal values.
int group_size(const Shape& shape, const ScheduleOptions& options);

}  // namespace pw
