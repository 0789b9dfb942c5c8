#include "schedules/orders/deferred.h"
#include "schedules/orders/holding.h"
#include "workloads/error.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

// The passes of a device through one of its two stages. The k-th micro-batch of the stage has the number
// first + k * step.
struct Phase {
    int stage;
    int first = 0, step = 1;
    int forwards = 0, backwards = 0;

    int next_forward() { return first + step * forwards++; }
    int next_backward() { return first + step * backwards++; }
};

// The eight steps of DualPipe on the r-th of h devices, from the ends of the pipeline to its middle. The forwards of
// `near` come from devices nearer to the ends, the forwards of `far` from devices nearer to the middle. Both have m
// micro-batches.
class DualPipeOrder {
public:
    DualPipeOrder(Phase near, Phase far) : near_(near), far_(far), deferred_(order_) {}

    Tasks made(int h, int r, int m) {
        repeat(2 * (h - r - 1), [&](int) { forward(near_); });
        repeat(r + 1, [&](int) {
            forward(near_);
            forward(far_);
        });
        repeat(h - r - 1, [&](int) {
            input(far_);
            deferred_.weight();
            forward(far_);
        });
        repeat(m - 2 * h + r + 1, [&](int k) {
            pair(near_, far_, k > 0 || r < h - 1);
            pair(far_, near_, true);
        });
        repeat(h - r - 1, [&](int) {
            backward(far_);
            pair(far_, near_, true);
        });
        repeat(2 * (r + 1), [&](int k) {
            Phase& phase = k % 2 == 0 ? far_ : near_;
            if (k > r)
                input(phase);
            else
                backward(phase);
        });
        repeat(h - r - 1, [&](int) {
            deferred_.weight();
            input(near_);
        });
        deferred_.rest();
        return std::move(order_);
    }

private:
    template <class Step>
    static void repeat(int times, Step step) {
        for (int k = 0; k < times; ++k)
            step(k);
    }
    void forward(Phase& phase) { order_.push_back({Op::Forward, phase.stage, phase.next_forward()}); }
    void backward(Phase& phase) { order_.push_back({Op::Backward, phase.stage, phase.next_backward()}); }
    void input(Phase& phase) { deferred_.input(phase.stage, phase.next_backward()); }
    void pair(Phase& ahead, Phase& back, bool overlapped) {
        forward(ahead);
        order_.back().with_next = overlapped;
        backward(back);
    }

    Phase near_, far_;
    Tasks order_;
    Deferred deferred_;
};

// DualPipe (DeepSeek-V3, 2024): two copies of the model in opposite directions. The micro-batches that enter from the
// device's own half of the pipeline are `near`.
Tasks dual_pipe(const Holding& own, const ScheduleOptions&) {
    const int p = own.shape.devices, m = own.shape.microbatches, r = std::min(own.device, p - 1 - own.device);
    if (m < 2 * p || m % 2 != 0)
        fail_about({Setting::MicroBatches, Setting::Devices},
                   "two directions of {} stages are filled by an even number of micro-batches, two per stage or more: "
                   "this is {}\n  help: take {} micro-batches",
                   p, m, m < 2 * p ? fmt::format("{}", 2 * p) : fmt::format("{} or {}", m - 1, m + 1));
    const int near = own.device == r ? 0 : 1;
    return DualPipeOrder({r, near, 2}, {p - 1 - r, 1 - near, 2}).made(p / 2, r, m / 2);
}

// DualPipeV (Sea AI Lab and DeepSeek, 2025): DualPipe cut in half. The micro-batches of the second direction are the
// micro-batches of the first on their way back.
Tasks dual_pipe_v(const Holding& own, const ScheduleOptions&) {
    const int p = own.shape.devices, m = own.shape.microbatches, device = own.device;
    if (m < 2 * p)
        fail_about({Setting::MicroBatches, Setting::Devices},
                   "a V of {} stages is filled by at least as many micro-batches: this is {}\n  help: take {} "
                   "micro-batches or more",
                   2 * p, m, 2 * p);
    return DualPipeOrder({device}, {2 * p - 1 - device}).made(p, device, m);
}

}  // namespace

extern const Schedule kDualPipe{.name = "dualpipe",
                                .summary = "both directions, F of one with B of the other, two copies of the weights",
                                .origin = "DeepSeek-V3 2024, arXiv 2412.19437",
                                .placement = kBothDirections,
                                .bubble = "<= (p/2-1) max(F+2B-3W, 2F) when F,W<=I",
                                .in_flight = "p + 1",
                                .orders = on_each_device<dual_pipe>};

extern const Schedule kDualPipeV{.name = "dualpipe-v",
                                 .aliases = "dualpipev",
                                 .summary = "dualpipe cut in half: two stages per device in a V, one copy of weights",
                                 .origin = "DeepSeek, Sea AI Lab 2025",
                                 .placement = kV,
                                 .chunks = 2,
                                 .bubble = "<= (p-1) max(F+2B-3W, 2F) / 2 when F,W<=I",
                                 .in_flight = "p + 1/2",
                                 .orders = on_each_device<dual_pipe_v>,
                                 .elsewhere = {.pytorch = "DualPipeV"}};

}  // namespace pw
