#include "schedules/orders/deferred.h"
#include "schedules/orders/holding.h"

#include <algorithm>

namespace pw {

namespace {

// `warmup` forwards, then one forward and one I alternately. From the (delay + 1)-th I on, a W follows each I; the
// remaining W come last.
Tasks alternate_split(const Holding& own, int warmup, int delay) {
    const std::vector<int>& microbatches = own.microbatches;
    const int stage = own.only_stage();
    const auto all = static_cast<int>(microbatches.size());
    warmup = std::min(warmup, all);
    Tasks order;
    Deferred deferred(order);
    for (int k = 0; k < warmup; ++k)
        order.push_back({Op::Forward, stage, microbatches[k]});
    for (int k = 0; k < all; ++k) {
        if (warmup + k < all)
            order.push_back({Op::Forward, stage, microbatches[warmup + k]});
        deferred.input(stage, microbatches[k]);
        if (k >= delay)
            deferred.weight();
    }
    deferred.rest();
    return order;
}

// ZB-H1 (Qi et al., 2024): 1F1B's warm-up. W lags by d micro-batches, which keeps the memory of 1F1B.
Tasks zb_h1(const Holding& own, const ScheduleOptions&) { return alternate_split(own, lead_of(own), lag_of(own)); }

// ZB-H2 (Qi et al., 2024): fills the bubble of the warm-up with forwards, at twice the memory. Zero bubble of the span
// needs m >= 2p - 1.
Tasks zb_h2(const Holding& own, const ScheduleOptions&) {
    return alternate_split(own, lead_of(own, 2), lag_of(own, 2));
}

}  // namespace

extern const Schedule kZbH1{.name = "zb-h1",
                            .aliases = "zerobubble zero-bubble",
                            .summary = "1f1b with W in the gaps, at its memory",
                            .origin = "Qi et al. 2024, arXiv 2401.10241",
                            .bubble = "(p-1) (F+I-W) when W<=F,I, m>=p",
                            .in_flight = "min(m, p-d) until I, min(m, p) until W",
                            .orders = on_each_device<zb_h1>};

extern const Schedule kZbH2{.name = "zb-h2",
                            .summary = "zero bubble of span at twice the memory",
                            .origin = "Qi et al. 2024, arXiv 2401.10241",
                            .bubble = "(p-1) (F+I-2W) of span when W<=F,I, m>=2p-1",
                            .in_flight = "min(m, 2(p-d)-1) until I, min(m, 2p-1) until W",
                            .orders = on_each_device<zb_h2>};

}  // namespace pw
