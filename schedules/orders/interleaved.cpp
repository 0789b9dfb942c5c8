#include "schedules/orders/chunk_groups.h"

#include <cstddef>

namespace pw {

namespace {

// Interleaved 1F1B (Narayanan et al., 2021): device d holds stages d, d + p, ...; groups of micro-batches go through
// one stage of the device after the other, in the opposite order for backwards. With pairs a device runs a forward more
// before its first backward, so that no backward needs the forward that it runs with (NVIDIA/Megatron-LM@d98e8a6,
// megatron/core/pipeline_parallel/schedules.py, get_pp_rank_microbatches).
Tasks interleaved(const Holding& own, const ScheduleOptions& options) {
    const int p = own.shape.devices, v = own.shape.stages / p, group = group_size(own.shape, options);
    const int ahead = 2 * (p - 1 - own.device) + (v - 1) * group + (options.pairs ? 1 : 0);
    Tasks order;
    interleave_stages(own, group, ahead, order, [&](int stage, int microbatch) {
        order.push_back({Op::Backward, stage, microbatch});
    });
    for (std::size_t step = static_cast<std::size_t>(ahead); options.pairs && step < order.size(); ++step)
        order[step].with_next = order[step].op == Op::Forward;
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
                                   .takes_pairs = true,
                                   .usual = true,
                                   .elsewhere = {.pytorch = "Interleaved1F1B", .megatron = true}};

}  // namespace pw
