#include "schedules/orders/chunk_groups.h"
#include "schedules/orders/deferred.h"

namespace pw {

namespace {

// PyTorch's InterleavedZeroBubble: interleaved with I and W separate and half the warm-up; W lags I by d micro-batches
// of the sequence.
Tasks zb1p(const Holding& own, const ScheduleOptions& options) {
    const int p = own.shape.devices, v = own.shape.stages / p, group = group_size(own.shape, options);
    Tasks order;
    Deferred deferred(order);
    int number = 0;
    interleave_stages(own, group, (p - 1 - own.device) + (v - 1) * group, order, [&](int stage, int microbatch) {
        deferred.input(stage, microbatch);
        if (number++ >= own.device)
            deferred.weight();
    });
    deferred.rest();
    return order;
}

}  // namespace

extern const Schedule kZb1p{.name = "zb1p",
                            .aliases = "interleavedzerobubble interleaved-zero-bubble",
                            .summary = "interleaved with W in the gaps",
                            .origin = "PyTorch InterleavedZeroBubble",
                            .placement = kLooped,
                            .chunks = 2,
                            .bubble = "(p-1) (F+I-W) / v when W<=F,I, m>=p",
                            .in_flight = "min(m, (p + (v-1)N) / v) until W",
                            .orders = on_each_device<zb1p>,
                            .one_stage = "zb-h1",
                            .option = "group",
                            .elsewhere = {.pytorch = "InterleavedZeroBubble"}};

}  // namespace pw
