#include "schedules/orders/holding.h"

#include <algorithm>

namespace pw {

namespace {

// The hand-written order of ZB-V on a device, for as many micro-batches as its phases need. Micro-batches beyond the
// mini-batch are left out.
class VOrder {
public:
    VOrder(const Shape& shape, int device)
        : down{device}, up{2 * shape.devices - 1 - device}, microbatches_(shape.microbatches) {}

    struct Leg {
        int stage;
        int forwards = 0, inputs = 0, weights = 0;
        // Repeats the changes since `before` this many times.
        void count(const Leg& before, int times) {
            forwards += times * (forwards - before.forwards);
            inputs += times * (inputs - before.inputs);
            weights += times * (weights - before.weights);
        }
    };

    void forward(Leg& leg) { put(Op::Forward, leg.stage, leg.forwards++); }
    void input(Leg& leg) { put(Op::BackwardInput, leg.stage, leg.inputs++); }
    void weight(Leg& leg) { put(Op::BackwardWeight, leg.stage, leg.weights++); }
    void input_and_weight(Leg& leg) {
        input(leg);
        weight(leg);
    }
    void rest(Leg& leg) {
        repeat(leg.inputs - leg.weights, [&] { weight(leg); });
    }

    // Runs a step this many times. Once the step adds no task, it never will. The rest is then only counted.
    template <class Step>
    void repeat(int times, Step step) {
        for (; times > 0; --times) {
            const Leg down_before = down, up_before = up;
            const std::size_t before = order.size();
            step();
            if (order.size() > before)
                continue;
            down.count(down_before, times - 1);
            up.count(up_before, times - 1);
            return;
        }
    }

    Leg down, up;  // stage d on the way down, 2p - 1 - d on the way up
    Tasks order;

private:
    void put(Op op, int stage, int microbatch) {
        if (microbatch < microbatches_)
            order.push_back({op, stage, microbatch});
    }
    const int microbatches_;
};

// ZB-V (Qi et al., 2024), the hand-written order (PyTorch's ZBVZeroBubble): zero bubble of the span if F, I and W take
// equally long.
Tasks zb_v(const Holding& own, const ScheduleOptions&) {
    const int p = own.shape.devices, device = own.device, filled = std::max(own.shape.microbatches, 2 * p - 1);
    VOrder v(own.shape, device);
    v.repeat(2 * (p - device) - 1, [&] { v.forward(v.down); });
    v.repeat(device, [&] {
        v.forward(v.up);
        v.forward(v.down);
    });
    v.repeat(p - device, [&] {
        v.forward(v.up);
        v.input_and_weight(v.up);
    });
    v.repeat(filled - v.up.forwards, [&] {
        if (v.down.forwards < filled)
            v.forward(v.down);
        v.input_and_weight(v.down);
        v.forward(v.up);
        v.input_and_weight(v.up);
    });
    v.repeat(device, [&] {
        v.input(v.down);
        v.input(v.up);
    });
    v.repeat(p - device, [&] { v.input_and_weight(v.down); });
    v.rest(v.up);
    v.rest(v.down);
    return v.order;
}

}  // namespace

extern const Schedule kZbV{.name = "zb-v",
                           .aliases = "zbv zbvzerobubble zbv-formatted",
                           .summary = "two stages per device in a V: zero bubble of span when F=I=W",
                           .origin = "Qi et al. 2024, arXiv 2401.10241",
                           .placement = kV,
                           .chunks = 2,
                           .bubble = "0 of span when F=I=W, m>=2p",
                           .in_flight = "min(m, p) until W",
                           .orders = on_each_device<zb_v>,
                           .elsewhere = {.pytorch = "ZBVZeroBubble"}};

}  // namespace pw
