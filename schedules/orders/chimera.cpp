#include "schedules/orders/holding.h"
#include "workloads/error.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

// Chimera (Li and Hoefler, 2021): two copies of the model in opposite directions, each with half of the micro-batches.
// Where F and B take a slot each, the k-th micro-batch of a direction in a unit of p micro-batches has the slots of
// 1F1B on stage s: F at s + 2k and B at 2p - 1 - s + 2k. As p is even, the slots of the two directions never meet, and
// the next unit begins 2p slots later (direct concatenation). A device runs its tasks in the order of their slots.
Tasks direct_units(const Holding& own) {
    const int p = own.shape.devices;
    std::vector<std::pair<int, Task>> slots;
    for (const int mb : own.microbatches) {
        const int stage = mb % 2 == 0 ? own.device : p - 1 - own.device;
        const int start = 2 * (mb / p * p + mb % p / 2);
        slots.push_back({start + stage, {Op::Forward, stage, mb}});
        slots.push_back({start + 2 * p - 1 - stage, {Op::Backward, stage, mb}});
    }
    std::sort(slots.begin(), slots.end());
    Tasks order;
    for (const auto& [slot, task] : slots)
        order.push_back(task);
    return order;
}

// A direction of a device: its stage and its next micro-batches. Even micro-batches enter at the first device.
class Direction {
public:
    Direction(int stage, int first, Tasks& order) : stage_(stage), forward_(first), backward_(first), order_(order) {}
    void two_forwards() {
        for (int k = 0; k < 2; ++k, forward_ += 2)
            order_.push_back({Op::Forward, stage_, forward_});
    }
    void backward() {
        order_.push_back({Op::Backward, stage_, backward_});
        backward_ += 2;
    }

private:
    int stage_, forward_, backward_;
    Tasks& order_;
};

// Units of 2p micro-batches in which forwards come in twos, so that a slot of F is as long as a slot of B = 2F. The
// loops are taken from the authors' training program (chimera_bert, forward doubling).
Tasks forward_doubling(const Holding& own) {
    const int p = own.shape.devices, half = p / 2, d = own.device;
    if (own.shape.microbatches % (2 * p) != 0)
        fail_about({Setting::MicroBatches, Setting::Devices},
                   "forward doubling on {} devices has units of {} micro-batches: this is {}\n  help: take a multiple "
                   "of {}",
                   p, 2 * p, own.shape.microbatches, 2 * p);
    const bool first_half = d < half;
    const int before = first_half ? half - d : d - half + 1, between = half - before;
    Tasks order;
    Direction down(d, 0, order), up(p - 1 - d, 1, order);
    Direction &near = first_half ? down : up, &far = first_half ? up : down;
    for (int unit = 0; unit < own.shape.microbatches / (2 * p); ++unit) {
        for (int k = 0; k < before; ++k) {
            if (unit > 0)
                near.backward();
            near.two_forwards();
        }
        for (int k = 0; k < between; ++k) {
            far.two_forwards();
            near.two_forwards();
        }
        for (int k = 0; k < before; ++k) {
            far.two_forwards();
            far.backward();
        }
        for (int k = 0; k < between + half; ++k) {
            near.backward();
            far.backward();
        }
    }
    for (int k = 0; k < before; ++k)
        near.backward();
    return order;
}

Tasks chimera(const Holding& own, const ScheduleOptions& options) {
    return options.concatenation == ScheduleOptions::Concatenation::Direct ? direct_units(own) : forward_doubling(own);
}

}  // namespace

extern const Schedule kChimera{.name = "chimera",
                               .summary = "1f1b in both directions, two copies of the weights",
                               .origin = "Li and Hoefler 2021, arXiv 2107.06925",
                               .placement = kBothDirections,
                               .bubble = "(p-2) F when F=B, p divides m",
                               .in_flight = "min(m, p/2 + 1 + min(d, p-1-d))",
                               .orders = on_each_device<chimera>,
                               .option = "concatenation"};

}  // namespace pw
