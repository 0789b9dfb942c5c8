// Times and memory of two directions on the same devices, by hand.
#include "schedules/memory/buffers.h"
#include "schedules/trace/trace_json.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/bidirectional.h"
#include "tests/support/shapes.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

Metrics metrics_both_ways(int devices, const Costs& costs) {
    return metrics_of(simulate(make_plan(kBidirectional, shape_both_ways(devices)), costs));
}

// Chimera with as many micro-batches as devices leaves D - 2 slots idle: 8 of work and 2, where F and B take one each.
// With B of 2, on device 0: F 0-1 and 1-2, 3F1 3-4, 3B1 4-6, 3F3 6-7, 3B3 7-9, 0B0 10-12 after 1B0 on device 1 (8-10),
// 0B2 14-16 after 1B2 on device 1 (12-14).
TEST(Bidirectional, StepsTakeAsLongAsInChimerasFigure) {
    EXPECT_EQ(metrics_both_ways(4, uniform(4, 1, 1, 0)).step_time, 10);
    const Metrics metrics = metrics_both_ways(4, uniform(4, 1, 1, 1));
    EXPECT_EQ(metrics.step_time, 16);
    for (const int device : {0, 3}) {
        EXPECT_EQ(metrics.devices[device].peak_in_flight, 3);
        EXPECT_EQ(metrics.devices[3 - device].busy, 12);
    }
    for (const int device : {1, 2})
        EXPECT_EQ(metrics.devices[device].peak_in_flight, 4);
}

TEST(Bidirectional, TracesAreChecked) {
    const Plan plan = make_plan(kBidirectional, shape_both_ways(4));
    EXPECT_NO_THROW(check_trace(simulate(plan, uniform(4, 3, 2, 2, 1)), "trace.json"));
}

// On two devices nothing is idle: 4 (F + B) = 12.
TEST(Bidirectional, TwoDevicesAreNeverIdle) { EXPECT_EQ(metrics_both_ways(2, uniform(2, 1, 1, 1)).step_time, 12); }

// Two hops of 1 for each micro-batch: 0F0 0-1, 1F0 2-3, 1B0 3-5, 0B0 6-8; so again 8-16, and no transfer hides, since
// the other direction needs the device at the same times.
TEST(Bidirectional, TransfersDelayBothDirections) {
    EXPECT_EQ(metrics_both_ways(2, uniform(2, 1, 1, 1, 1)).step_time, 16);
}

// Device 0: two units, 0-10, but for the last 0B2; S of stage 1 10-15, U 15-16, 0B2 16-18, S of stage 0 18-23, U 23-24.
TEST(Bidirectional, SumsTakeTheirTimeInOneOrder) {
    Costs costs = uniform(2, 1, 1, 1);
    for (StageCost& cost : costs.stage) {
        cost.sum_gradients = 5;
        cost.update = 1;
    }
    EXPECT_EQ(metrics_both_ways(2, costs).step_time, 24);
}

// Every device keeps two stages: weights, gradients and momentum of both.
TEST(Bidirectional, DevicesHoldTwoStages) {
    const Plan plan = make_plan(kBidirectional, shape_both_ways(4));
    Costs costs = uniform(4, 1, 1, 1);
    for (int stage = 0; stage < 4; ++stage)
        costs.bytes[stage].weights = 64 << (2 * stage);
    const auto memory = memory_of(plan, buffers_of(plan, costs, versions_of(plan)));
    for (int device = 0; device < 4; ++device)
        for (const MemoryKind kind : {MemoryKind::Weights, MemoryKind::Gradients, MemoryKind::Optimizer})
            EXPECT_EQ(peak_of(memory[device])[static_cast<int>(kind)],
                      costs.bytes[device].weights + costs.bytes[3 - device].weights);
}

}  // namespace
}  // namespace pw
