// One forward and one backward in turn, with a flush and without.
#include "schedules/orders/holding.h"
#include "workloads/error.h"

#include <algorithm>

namespace pw {

namespace {

// `warmup` forwards ahead, then one forward and one backward in turn, then the remaining backwards.
Tasks alternate(const Holding& own, int warmup) {
    const std::vector<int>& microbatches = own.microbatches;
    const int stage = own.only_stage();
    const auto all = static_cast<int>(microbatches.size());
    warmup = std::min(warmup, all);
    Tasks order;
    for (int k = 0; k < warmup; ++k)
        order.push_back({Op::Forward, stage, microbatches[k]});
    for (int k = 0; k < all; ++k) {
        if (warmup + k < all)
            order.push_back({Op::Forward, stage, microbatches[warmup + k]});
        order.push_back({Op::Backward, stage, microbatches[k]});
    }
    return order;
}

// 1F1B ("PipeDream-Flush", DAPPLE). Device d runs (p - 1 - d) forwards ahead, so it never holds more
// than (p - d) activations.
Tasks one_f_one_b(const Holding& own, const ScheduleOptions&) { return alternate(own, share_ahead(own)); }

// Eager 1F1B (Zhuang et al., 2023): twice as far ahead, so that computing hides transfers.
Tasks eager_one_f_one_b(const Holding& own, const ScheduleOptions&) { return alternate(own, share_ahead(own, 2)); }

// PipeDream-2BW (Narayanan et al., 2021): 1F1B without a flush; two versions are enough when a
// mini-batch is at least as long as the pipeline. With replicas too: F(s, i) follows B(s, i - (a + 1) r), and its
// version is there if that one is of the mini-batch before the last or later, which a <= m div r, that is
// (R - 1 - q) div r <= m div r, makes sure of.
Tasks double_buffered(const Holding& own, const ScheduleOptions& options) {
    const Shape& shape = own.shape;
    if (shape.per_update < shape.devices)
        fail_about({Setting::MicroBatches},
                   "two weight versions need at least as many micro-batches per update as devices: {} for {} "
                   "devices\n  help: take {} micro-batches or more",
                   shape.per_update, shape.devices, shape.devices);
    return one_f_one_b(own, options);
}

constexpr WeightPolicy kPipedreamPolicies[] = {WeightPolicy::Stash, WeightPolicy::VerticalSync, WeightPolicy::Latest};
constexpr WeightPolicy kTwoVersions[] = {WeightPolicy::DoubleBuffer};

}  // namespace

extern const Schedule kOneFOneB{.name = "1f1b",
                                .aliases = "basic-1f1b dapple pipedream-flush",
                                .summary = "after warm-up, one forward then one backward",
                                .origin = "DAPPLE, PipeDream-Flush 2020, arXiv 2006.09503",
                                .bubble = "(p-1) (F+B)",
                                .in_flight = "min(m, p-d)",
                                .orders = on_each_device<one_f_one_b>};

extern const Schedule kEagerOneFOneB{.name = "eager-1f1b",
                                     .summary = "1f1b with twice the warm-up: hides transfers",
                                     .origin = "Zhuang et al., MLSys 2023",
                                     .bubble = "(p-1) (F+B)",
                                     .in_flight = "min(m, 2(p-d)-1)",
                                     .orders = on_each_device<eager_one_f_one_b>};

extern const Schedule kPipedream{.name = "pipedream",
                                 .summary = "1f1b that never flushes, an update after every backward",
                                 .origin = "Narayanan et al., SOSP 2019",
                                 .updates = Updates::PerMicroBatch,
                                 .policies = kPipedreamPolicies,
                                 .bubble = "(p-1) (F+B) once per run",
                                 .in_flight = "p-d",
                                 .orders = on_each_device<one_f_one_b>};

extern const Schedule kPipedream2bw{
    .name = "pipedream-2bw",
    .aliases = "2bw",
    .summary = "1f1b that never flushes, an update after every m backwards, two weight versions",
    .origin = "Narayanan et al., ICML 2021, arXiv 2006.09503",
    .updates = Updates::PerMiniBatch,
    .policies = kTwoVersions,
    .bubble = "(p-1) (F+B) once per run",
    .in_flight = "p-d",
    .orders = on_each_device<double_buffered>};

}  // namespace pw
