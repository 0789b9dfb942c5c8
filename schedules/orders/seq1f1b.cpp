#include "schedules/orders/holding.h"

#include <algorithm>

namespace pw {

namespace {

// The backwards of micro-batches follow each other as their forwards do, but each goes through its slices from the last
// to the first.
int backward_number(int number, int slices) { return number / slices * slices + slices - 1 - number % slices; }

// Seq1F1B (Sun et al., 2024): 1F1B of slices of the sequence. The first backward is that of the last slice of a
// micro-batch, so that every device runs slices - 1 more forwards ahead than with 1F1B.
Tasks seq_one_f_one_b(const Holding& own, const ScheduleOptions&) {
    const int stage = own.only_stage(), slices = own.shape.slices, all = own.shape.microbatches;
    const int warmup = std::min(own.shape.devices - 1 - own.device + slices - 1, all);
    Tasks order;
    for (int number = 0; number < warmup; ++number)
        order.push_back(own.shape.task(Op::Forward, stage, number));
    for (int number = 0; number < all; ++number) {
        if (warmup + number < all)
            order.push_back(own.shape.task(Op::Forward, stage, warmup + number));
        order.push_back(own.shape.task(Op::Backward, stage, backward_number(number, slices)));
    }
    return order;
}

// Stage d on device d, without a number of holders per stage.
constexpr Placement kOneEach{"linear", "one stage", one_per_device};

}  // namespace

extern const Schedule kSeq1f1b{.name = "seq1f1b",
                               .aliases = "seq-1f1b",
                               .summary = "1f1b over slices of the sequences of each micro-batch",
                               .origin = "Sun et al. 2024, arXiv 2406.03488",
                               .placement = kOneEach,
                               .bubble = "(p-1) (F+B) / k",
                               .in_flight = "min(m, (p-d-1+k) / k)",
                               .orders = on_each_device<seq_one_f_one_b>,
                               .option = "slices",
                               .slices = 2};

}  // namespace pw
