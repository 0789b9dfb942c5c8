// Schedules that split the backward pass: I as soon as its gradient is there, W where it fills a gap.
#include "schedules/orders/orders.h"

#include <algorithm>
#include <deque>

namespace pw {

namespace {

// I tasks whose W is still to come, oldest first.
class Deferred {
public:
    explicit Deferred(Tasks& order) : order_(order) {}
    void input(int stage, int microbatch) {
        order_.push_back({Op::BackwardInput, stage, microbatch});
        waiting_.push_back({Op::BackwardWeight, stage, microbatch});
    }
    void weight() {
        if (waiting_.empty())
            return;
        order_.push_back(waiting_.front());
        waiting_.pop_front();
    }
    void rest() {
        while (!waiting_.empty())
            weight();
    }

private:
    Tasks& order_;
    std::deque<Task> waiting_;
};

// `warmup` forwards, then one forward and one I in turn; from the (delay + 1)-th I on a W follows each I; the
// remaining W last.
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

}  // namespace

// ZB-H1 (Qi et al., 2024): 1F1B's warm-up; W lags d micro-batches behind, so that memory stays that of
// 1F1B.
Tasks zb_h1(const Holding& own, const ScheduleOptions&) {
    return alternate_split(own, share_ahead(own), share_behind(own));
}

// ZB-H2 (Qi et al., 2024): fills the warm-up's bubble with forwards, at twice the memory. Zero bubble of
// span needs m >= 2p - 1.
Tasks zb_h2(const Holding& own, const ScheduleOptions&) {
    return alternate_split(own, share_ahead(own, 2), share_behind(own, 2));
}

// PyTorch's InterleavedZeroBubble: interleaved with I and W apart and half of its warm-up; W lags d
// turns behind.
Tasks zb1p(const Holding& own, const ScheduleOptions& options) {
    const int p = own.shape.devices, v = own.shape.stages / p, group = group_size(own.shape, options);
    Tasks order;
    Deferred deferred(order);
    int turn = 0;
    take_turns(own, group, (p - 1 - own.device) + (v - 1) * group, order, [&](int stage, int microbatch) {
        deferred.input(stage, microbatch);
        if (turn++ >= own.device)
            deferred.weight();
    });
    deferred.rest();
    return order;
}

namespace {

// The hand-written order of ZB-V on one device, for as many micro-batches as fill it; those beyond the
// mini-batch are left out as they come.
class VOrder {
public:
    VOrder(const Shape& shape, int device)
        : down{device}, up{2 * shape.devices - 1 - device}, microbatches_(shape.microbatches) {}

    struct Leg {
        int stage;
        int forwards = 0, inputs = 0, weights = 0;
        // Counts what came since `before` so many times more.
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

    // Does the same so many times. Once it has put down nothing, it never will: then it is only counted.
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

}  // namespace

// ZB-V (Qi et al., 2024), the hand-written order (PyTorch's ZBVZeroBubble): zero bubble of span when F, I
// and W take the same time.
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

}  // namespace pw
