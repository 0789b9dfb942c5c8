#include "schedules/orders/chunk_groups.h"

namespace pw {

namespace {

// Interleaved 1F1B (Narayanan et al., 2021): device d holds stages d, d + p, ...; groups of micro-batches go through
// one stage of the device after the other, in the opposite order for backwards.
Tasks interleaved(const Holding& own, const ScheduleOptions& options) {
    const int p = own.shape.devices, v = own.shape.stages / p, group = group_size(own.shape, options);
    Tasks order;
    interleave_stages(own, group, 2 * (p - 1 - own.device) + (v - 1) * group, order, [&](int stage, int microbatch) {
        order.push_back({Op::Backward, stage, microbatch});
    });
    return order;
}

}  // namespace

extern const Schedule kInterleaved{.name = "interleaved",
                                   .aliases = "interleaved1f1b interleave interleaved-1f1b vpp",
                                   .summary = "1f1b over several stages per device",
                                   .origin = "Narayanan et al. 2021, arXiv 2104.04473",
                                   .placement = kLooped,
                                   .chunks = 2,
                                   .bubble = "(p-1) (F+B) / v when m>=p",
                                   .in_flight = "min(m, (2(p-d)-1 + (v-1)N) / v)",
                                   .orders = on_each_device<interleaved>,
                                   .one_stage = "eager-1f1b",
                                   .option = "group",
                                   .usual = true,
                                   .elsewhere = {.pytorch = "Interleaved1F1B", .megatron = true}};

}  // namespace pw
