#include "schedules/orders/holding.h"

namespace pw {

namespace {

// Model parallelism: one micro-batch in flight, one device at work at a time.
Tasks naive(const Holding& own, const ScheduleOptions&) {
    Tasks order;
    for (const int mb : own.microbatches) {
        for (auto stage = own.stages.begin(); stage != own.stages.end(); ++stage)
            order.push_back({Op::Forward, *stage, mb});
        for (auto stage = own.stages.rbegin(); stage != own.stages.rend(); ++stage)
            order.push_back({Op::Backward, *stage, mb});
    }
    return order;
}

}  // namespace

extern const Schedule kNaive{.name = "naive",
                             .summary = "model parallel: one micro-batch in flight",
                             .placement = kAnyPlacement,
                             .bubble = "m (p-1) (F+B)",
                             .in_flight = "1",
                             .orders = on_each_device<naive>};

}  // namespace pw
