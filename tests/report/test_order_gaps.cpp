// Bounds of schedules by costs where costs differ by micro-batch, by pair, or by how a device ends.
#include "report/order_gap.h"
#include "report/report.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"
#include "workloads/lower_bound.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pw {
namespace {

struct Predicted {
    Ns step = 0, span = 0;
    OrderGap gap;
    bool fits = false;
};

Predicted predicted(const std::string& text, const std::vector<std::string>& set = {}) {
    Notices notices;
    const Report report = predicted_report(make_job(load(text, set), notices));
    return {report.metrics.step_time, report.metrics.span, report.order_gap.value_or(OrderGap{}), fits(report)};
}

void expect_proven(const Predicted& plan, Ns step) {
    EXPECT_EQ(plan.step, step);
    EXPECT_EQ(plan.gap.least_step, step);
    EXPECT_EQ(plan.gap.step, 0);
}

constexpr const char* kDispatch = R"(
workload: {model: uniform, stages: 2, forward: 10 us, backward_input: 10 us, backward_weight: 10 us}
cluster: {devices: 2, dispatch: 10 us}
pipeline: {schedule: auto, micro_batches: 4}
)";

// The second device waits for an F, runs F and B of four micro-batches, and U: each task has one dispatch.
TEST(OrderGaps, CountTheDispatchOncePerTask) {
    const Predicted whole = predicted(kDispatch),
                    ones = predicted(kDispatch, {"pipeline.micro_batch_lengths=[1, 1, 1, 1]"});
    EXPECT_EQ(whole.step, 260'000);
    EXPECT_EQ(whole.gap.least_step, (20 + 4 * (20 + 30) + 10) * 1000);
    EXPECT_EQ(ones.step, whole.step);
    EXPECT_EQ(ones.gap.least_step, whole.gap.least_step);
    const Predicted four = predicted(kDispatch, {"pipeline.micro_batch_lengths=[4, 4, 4, 4]"});
    EXPECT_EQ(four.step, 660'000);
    EXPECT_EQ(four.gap.least_step, (50 + 4 * (50 + 90) + 10) * 1000);
}

// One device runs all F and B, and the U of the stage that ends first; the span ends before the other U.
TEST(OrderGaps, CountNoUpdateInASpan) {
    const Predicted one = predicted(R"(
workload: {model: uniform, stages: 2, forward: 10 us, backward_input: 10 us, backward_weight: 10 us}
cluster: {devices: 1, dispatch: 10 us}
pipeline: {schedule: auto, micro_batches: 2, aim: span}
)");
    EXPECT_EQ(one.span, 210'000);
    EXPECT_EQ(one.gap.least_span, (4 * (20 + 30) + 10) * 1000);
    expect_proven(one, 220'000);
}

// With room for one micro-batch, each takes F, a message, F, I, a message and B; the last W runs meanwhile.
TEST(OrderGaps, CountMessagesAsLongAsTheirMicroBatch) {
    constexpr const char* kMessages = R"(
workload: {model: uniform, stages: 2, forward: 30 us, backward_input: 20 us, backward_weight: 10 us, output: 100 kB}
cluster: {devices: 2, link: {bandwidth: 1 GB/s}}
pipeline: {schedule: auto, micro_batches: 4, activations: 1}
)";
    const Ns one_by_one = (30 + 100 + 30 + 20 + 100 + 30) * (1000 + 3 * 100);
    expect_proven(predicted(kMessages, {"pipeline.micro_batch_lengths=[1, 0.1, 0.1, 0.1]"}), one_by_one);
    expect_proven(predicted(kMessages, {"pipeline.micro_batch_lengths=[0.1, 0.1, 0.1, 1]"}), one_by_one);
    const Predicted two =
        predicted(kMessages, {"pipeline.micro_batch_lengths=[1, 0.1, 0.1, 0.1]", "pipeline.activations=2"});
    EXPECT_LE(two.step, 351'000);
    EXPECT_LE(two.gap.least_step, two.step);
}

constexpr const char* kActivations = R"(
workload: {model: uniform, stages: 3, forward: 10 us, backward_input: 10 us, backward_weight: 10 us,
           activation: 100 MB, activation_until_weight: 100 MB}
cluster: {devices: 3, memory: 100 MB}
pipeline: {schedule: auto, micro_batches: 6}
)";

TEST(OrderGaps, CountTheMemoryOfEachMicroBatch) {
    const Predicted half = predicted(kActivations, {"pipeline.micro_batch_lengths=[0.5, 0.5, 0.5, 0.5, 0.5, 0.5]"});
    expect_proven(half, predicted(kActivations, {"workload.forward=5 us", "workload.backward_input=5 us",
                                                 "workload.backward_weight=5 us", "workload.activation=50 MB",
                                                 "workload.activation_until_weight=50 MB"})
                            .step);
    EXPECT_TRUE(half.fits);
    const Predicted last = predicted(kActivations, {"cluster.memory=300 MB", "pipeline.micro_batches=10",
                                                    "pipeline.micro_batch_lengths=[1, 1, 1, 1, 1, 1, 1, 1, 1, 3]"});
    EXPECT_TRUE(last.fits);
    EXPECT_LE(last.step, 500'000);
    EXPECT_LE(last.gap.least_step, last.step);
}

constexpr const char* kPairs = R"(
workload: {model: uniform, stages: 4, forward: 1 us, backward_input: 1 us, backward_weight: 1 us,
           overlapped_forward_backward: 2 us}
cluster: {devices: 4}
pipeline: {schedule: auto-bidirectional, micro_batches: 12, activations: 100}
)";

// DualPipe's pairs hide a third of the work.
TEST(OrderGaps, CountPairsThatOverlap) {
    const Predicted both = predicted(kPairs);
    EXPECT_EQ(both.step, predicted(kPairs, {"pipeline.schedule=dualpipe"}).step);
    EXPECT_EQ(both.step, 30'000);
    EXPECT_LE(both.gap.least_step, both.step);
    EXPECT_GE(both.gap.least_step, 12 * 2'000 - 12);
    const Predicted v = predicted(kPairs, {"pipeline.schedule=auto-v", "workload.stages=8"});
    EXPECT_EQ(v.step, predicted(kPairs, {"pipeline.schedule=dualpipe-v", "workload.stages=8"}).step);
    EXPECT_EQ(v.step, 60'000);
    EXPECT_LE(v.gap.least_step, v.step);
}

// A B of odd parts is rounded once, its I and W once each.
TEST(OrderGaps, RoundAsTheSimulatorDoes) {
    expect_proven(predicted(R"(
workload: {model: uniform, stages: 2, forward: [15 ns, 3 ns], backward_input: [29 ns, 12 ns], backward_weight: [29 ns, 22 ns]}
cluster: {devices: 1}
pipeline: {schedule: auto, micro_batches: 4, micro_batch_lengths: [1, 3, 1, 0.5], activations: 2}
)"),
                  606);
}

TEST(OrderGaps, AreRefusedBelowZero) {
    check_lower_bound(Ns{5}, Ns{5}, "the step");
    check_lower_bound(1.0 + 1e-12, 1.0, "the load");
    expect_says(refusal([] { check_lower_bound(Ns{6}, Ns{5}, "the step"); }, ExitCode::RunFailed),
                {"internal error: the lower bound of the step is 6 ns, but 5 ns is reached", "please report it"});
    expect_says(refusal([] { check_lower_bound(1.5, 1.0, "the load"); }, ExitCode::RunFailed),
                {"internal error: the lower bound of the load is 1.5, but 1 is reached"});
}

}  // namespace
}  // namespace pw
