#include "schedules/orders/chunk_groups.h"

namespace pw {

namespace {

// Evaluation: groups of p micro-batches, so that a device with several stages never waits for a round trip of one of
// them.
Tasks forward_only(const Holding& own, const ScheduleOptions&) {
    const auto chunks = static_cast<int>(own.stages.size()), all = static_cast<int>(own.microbatches.size());
    Tasks order;
    for (const VirtualMicrobatch& next : virtual_microbatches(chunks, all, own.shape.devices))
        order.push_back(own.shape.task(Op::Forward, own.stages[next.chunk], own.microbatches[next.microbatch]));
    return order;
}

}  // namespace

extern const Schedule kForwardOnly{.name = "forward-only",
                                   .aliases = "inference evaluation",
                                   .summary = "evaluation: no backward, no update",
                                   .placement = kAnyPlacement,
                                   .bubble = "(p-1) F / v when p divides m",
                                   .in_flight = "1",
                                   .orders = on_each_device<forward_only>,
                                   .trains = false,
                                   .option = "slices",
                                   .slices = 1};

}  // namespace pw
