// The order rules of the schedules: the compute tasks of one device, in order. They are pure functions
// of the shape and of what the device holds of it. Rules and their sources: docs/schedules.md.
#pragma once

#include "schedules/orders/schedule.h"
#include "schedules/plan/shape_index.h"

#include <functional>

namespace pw {

using Tasks = std::vector<Task>;

// What a device holds of a shape.
struct Holding {
    const Shape& shape;
    int device;
    std::vector<int> stages;        // ascending
    std::vector<int> microbatches;  // that it serves, ascending: the holders of its stages take turns (1F1B-RR)
    int holders;                    // of its first stage
    int devices_before;             // that hold the stages before that one

    int only_stage() const;  // throws Error (BadInput) when it holds not exactly one
};

class Holdings {
public:
    explicit Holdings(const Shape& shape);  // keeps a reference
    Holding of(int device) const;

private:
    const Shape& shape_;
    ShapeIndex index_;
    std::vector<int> devices_before_;  // by stage
};

// The tasks of these schedules are all forwards and full backwards.
Tasks naive(const Holding& own, const ScheduleOptions& options);
Tasks gpipe(const Holding& own, const ScheduleOptions& options);
Tasks one_f_one_b(const Holding& own, const ScheduleOptions& options);
Tasks eager_one_f_one_b(const Holding& own, const ScheduleOptions& options);
Tasks interleaved(const Holding& own, const ScheduleOptions& options);
Tasks breadth_first(const Holding& own, const ScheduleOptions& options);
Tasks forward_only(const Holding& own, const ScheduleOptions& options);
Tasks double_buffered(const Holding& own, const ScheduleOptions& options);

// These schedules split the backward into I, for inputs, and W, for weights.
Tasks zb_h1(const Holding& own, const ScheduleOptions& options);
Tasks zb_h2(const Holding& own, const ScheduleOptions& options);
Tasks zb1p(const Holding& own, const ScheduleOptions& options);
Tasks zb_v(const Holding& own, const ScheduleOptions& options);

// Return how many of its own micro-batches a device of one stage runs ahead of, or lags behind, those around it,
// `times` over: p - 1 - d and d where every stage has one device. The r holders of a stage share the micro-batches: of
// R devices in all, with q before the stage, each runs (R - 1 - q) / r ahead (PipeDream's 1F1B-RR). No circle of waits
// comes of it. With a ahead, F(s, i), the forward of micro-batch i on stage s, waits for the backward B(s, i - (a + 1)
// r) and no later one; B(s, i) waits for F(s, i + a' r') at most, which stage s' behind it runs first; and a' r' < (a +
// 1) r.
int share_ahead(const Holding& own, int times = 1);
int share_behind(const Holding& own, int times = 1);

// A device with several stages takes turns: it runs groups of micro-batches, in a group stage after stage, backwards in
// the opposite order of stages. `ahead` forwards, then one forward and one backward in turn.
using BackwardOf = std::function<void(int stage, int microbatch)>;
void take_turns(const Holding& own, int group, int ahead, Tasks& order, const BackwardOf& backward);

// Returns the micro-batches per group: without options.group by PyTorch's rule, with it by Megatron's; throws Error
// (BadInput) with the nearest legal values.
int group_size(const Shape& shape, const ScheduleOptions& options);

}  // namespace pw
