// Schedules that split the backward: I (for inputs) runs as soon as its gradient arrives, W (for weights) where it
// fills a gap.
#pragma once

#include "schedules/orders/schedule.h"

#include <deque>

namespace pw {

// Holds back the W of each I, oldest first.
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

}  // namespace pw
