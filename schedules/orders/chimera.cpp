#include "schedules/orders/holding.h"
#include "workloads/error.h"

#include <algorithm>
#include <utility>

namespace pw {

namespace {

// Chimera (Li and Hoefler, 2021): two copies of the model in opposite directions, each with half of the micro-batches.
// Where F and B take one slot each, the k-th micro-batch of a direction in a unit of p micro-batches has the slots of
// 1F1B on stage s: F at s + 2k and B at 2p - 1 - s + 2k. As p is even, the slots of the two directions never meet, and
// the next unit begins 2p slots later (direct concatenation). A device runs its tasks in the order of their slots.
Tasks chimera(const Holding& own, const ScheduleOptions&) {
    const int p = own.shape.devices;
    check_both_directions(own.shape);
    if (own.shape.microbatches < 2)
        fail_about(
            {Setting::MicroBatches},
            "schedule chimera needs a micro-batch for each direction: this is {}\n  help: take 2 micro-batches or "
            "more",
            own.shape.microbatches);
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

}  // namespace

extern const Schedule kChimera{.name = "chimera",
                               .summary = "1f1b in both directions, two copies of the weights",
                               .origin = "Li and Hoefler 2021, arXiv 2107.06925",
                               .placement = kBothDirections,
                               .bubble = "(p-2) F when F=B",
                               .in_flight = "min(m, p/2 + 1 + min(d, p-1-d))",
                               .orders = on_each_device<chimera>};

}  // namespace pw
