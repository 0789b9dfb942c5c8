// A forward and a backward alternately, with a flush and without.
#include "schedules/orders/holding.h"
#include "workloads/error.h"

#include <algorithm>
#include <span>

namespace pw {

namespace {

// Appends `warmup` forwards, then a forward and a backward alternately, then the remaining backwards.
void alternate(int stage, std::span<const int> microbatches, int warmup, Tasks& order) {
    const auto all = static_cast<int>(microbatches.size());
    warmup = std::min(warmup, all);
    order.reserve(order.size() + 2 * microbatches.size());
    for (int k = 0; k < warmup; ++k)
        order.push_back({Op::Forward, stage, microbatches[k]});
    for (int k = 0; k < all; ++k) {
        if (warmup + k < all)
            order.push_back({Op::Forward, stage, microbatches[warmup + k]});
        order.push_back({Op::Backward, stage, microbatches[k]});
    }
}

Tasks alternate(const Holding& own, int warmup) {
    Tasks order;
    alternate(own.only_stage(), own.microbatches, warmup, order);
    return order;
}

// 1F1B ("PipeDream-Flush", DAPPLE). Device d runs p - 1 - d forwards ahead, so it never holds more than p - d
// activations.
Tasks one_f_one_b(const Holding& own, const ScheduleOptions&) { return alternate(own, lead_of(own)); }

// Eager 1F1B (Zhuang et al., 2023): twice as many forwards ahead, so that computation hides transfers.
Tasks eager_one_f_one_b(const Holding& own, const ScheduleOptions&) { return alternate(own, lead_of(own, 2)); }

// PipeDream-2BW (Narayanan et al., 2021): 1F1B without a flush. Two versions suffice if a mini-batch has at least as
// many micro-batches as the pipeline has devices. This holds with replicas, too: F(s, i) follows B(s, i - (a + 1) r),
// and its version exists if that micro-batch belongs to the mini-batch before the last or to a later mini-batch. a <= m
// div r ensures this, and (R - 1 - q) div r <= m div r.
Tasks double_buffered(const Holding& own, const ScheduleOptions& options) {
    const Shape& shape = own.shape;
    if (shape.per_update < shape.devices)
        fail_about({Setting::MicroBatches},
                   "two weight versions need at least as many micro-batches per update as devices: {} for {} "
                   "devices\n  help: take {} micro-batches or more",
                   shape.per_update, shape.devices, shape.devices);
    return one_f_one_b(own, options);
}

// PipeMare: 2(p - 1 - d) + 1 forwards ahead, without a flush. That is the delay of a pipeline whose stages run a
// forward and a backward in every slot. The backward of a micro-batch comes 2(p - 1 - d) + 1 slots after its forward,
// and as many gradients are missing from the weights of the forward. The first mini-batches may run as 1F1B, each
// flushed: its forwards follow all backwards before it, and so all updates.
Tasks pipemare(const Holding& own, const ScheduleOptions& options) {
    const int stage = own.only_stage();
    std::span<const int> left = own.microbatches;
    Tasks order;
    for (int step = 0; step < std::min(options.synchronous_steps, own.shape.updates()); ++step) {
        const auto end = std::ranges::upper_bound(left, own.shape.last_of(step));
        const auto count = static_cast<std::size_t>(end - left.begin());
        alternate(stage, left.first(count), lead_of(own), order);
        left = left.subspan(count);
    }
    alternate(stage, left, lead_of(own, 2, 1), order);
    return order;
}

// The r holders of a stage that run a forwards ahead have a r micro-batches between a forward and its backward.
template <int times, int more>
int missing_in(const Shape& shape, int stage) {
    const auto holders = static_cast<int>(shape.devices_of(stage).size());
    return (times * (shape.devices - 1 - shape.devices_before(stage)) + more) / holders * holders;
}

constexpr WeightPolicy kNewest[] = {WeightPolicy::Latest};
constexpr WeightPolicy kPipedreamPolicies[] = {WeightPolicy::Stash, WeightPolicy::VerticalSync, WeightPolicy::Latest};
constexpr WeightPolicy kTwoVersions[] = {WeightPolicy::DoubleBuffer};

}  // namespace

extern const Schedule kOneFOneB{.name = "1f1b",
                                .aliases = "basic-1f1b dapple pipedream-flush",
                                .summary = "after warm-up, one forward then one backward",
                                .origin = "DAPPLE, PipeDream-Flush 2020, arXiv 2006.09503",
                                .bubble = "(p-1) (F+B)",
                                .in_flight = "min(m, p-d)",
                                .orders = on_each_device<one_f_one_b>,
                                .usual = true,
                                .elsewhere = {.pytorch = "1F1B", .megatron = true, .deepspeed = true}};

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
                                 .orders = on_each_device<one_f_one_b>,
                                 .missing_gradients = missing_in<1, 0>};

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

extern const Schedule kPipemare{
    .name = "pipemare",
    .summary = "never flushes, an update after every m backwards, one weight version, corrected in backwards",
    .origin = "Yang et al., MLSys 2021, arXiv 1910.05124",
    .updates = Updates::PerMiniBatch,
    .policies = kNewest,
    .prediction = Prediction::PipeMare,
    .bubble = "(p-1) (F+B) once per run",
    .in_flight = "2(p-d)",
    .orders = on_each_device<pipemare>,
    .missing_gradients = missing_in<2, 1>,
    .option = "synchronous_steps"};

}  // namespace pw
