#include "schedules/orders/holding.h"

namespace pw {

namespace {

// Breadth-first (Lamy-Poirier, 2022; LoopedBFS): every stage of a device runs all its micro-batches at once. The
// backwards drain last in, first out, as in PyTorch.
Tasks breadth_first(const Holding& own, const ScheduleOptions& options) {
    const int m = own.shape.microbatches;
    const bool fifo = options.drain == ScheduleOptions::Drain::Fifo;
    Tasks order;
    for (const int stage : own.stages)
        for (int mb = 0; mb < m; ++mb)
            order.push_back({Op::Forward, stage, mb});
    for (auto stage = own.stages.rbegin(); stage != own.stages.rend(); ++stage)
        for (int mb = 0; mb < m; ++mb)
            order.push_back({Op::Backward, *stage, fifo ? mb : m - 1 - mb});
    return order;
}

}  // namespace

extern const Schedule kBreadthFirst{.name = "bfs",
                                    .aliases = "loopedbfs looped-bfs breadth-first",
                                    .summary = "each stage of a device runs all its micro-batches at once",
                                    .origin = "Lamy-Poirier 2022, arXiv 2211.05953",
                                    .placement = kLooped,
                                    .chunks = 2,
                                    .bubble = "(p-1) (F+B) / v when m>=p",
                                    .in_flight = "m",
                                    .orders = on_each_device<breadth_first>,
                                    .one_stage = "gpipe",
                                    .option = "drain",
                                    .elsewhere = {.pytorch = "LoopedBFS"}};

}  // namespace pw
