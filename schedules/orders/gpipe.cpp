#include "schedules/orders/holding.h"

#include <algorithm>

namespace pw {

namespace {

// GPipe (Huang et al., 2019): all forwards, then all backwards. The drain is first in, first out (PyTorch) or last in,
// first out.
Tasks gpipe(const Holding& own, const ScheduleOptions& options) {
    std::vector<int> microbatches = own.microbatches;
    Tasks order;
    for (const int mb : microbatches)
        for (auto stage = own.stages.begin(); stage != own.stages.end(); ++stage)
            order.push_back({Op::Forward, *stage, mb});
    if (options.drain == ScheduleOptions::Drain::Lifo)
        std::reverse(microbatches.begin(), microbatches.end());
    for (const int mb : microbatches)
        for (auto stage = own.stages.rbegin(); stage != own.stages.rend(); ++stage)
            order.push_back({Op::Backward, *stage, mb});
    return order;
}

}  // namespace

extern const Schedule kGpipe{.name = "gpipe",
                             .summary = "all forwards, then all backwards",
                             .origin = "Huang et al. 2019, arXiv 1811.06965",
                             .placement = kAnyPlacement,
                             .bubble = "(p-1) (F+B)",
                             .in_flight = "m",
                             .orders = on_each_device<gpipe>,
                             .option = "drain",
                             .elsewhere = {.pytorch = "GPipe"}};

}  // namespace pw
