// Replicas of stages in asynchronous plans: when they update, and which versions they read and hold.
#include "schedules/memory/buffers.h"
#include "schedules/orders/holding.h"
#include "schedules/plan/versions.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/asynchronous_plans.h"
#include "tests/support/interleavings.h"
#include "tests/support/refusal.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace pw {
namespace {

int common_multiple(const Replicas& replicas) {
    return std::accumulate(replicas.begin(), replicas.end(), 1, [](int a, int b) { return std::lcm(a, b); });
}

// 1F1B-RR (SOSP 2019): replica i mod r of a stage serves micro-batch i, and all replicas update together, after as
// many micro-batches as every stage shares out evenly.
TEST(AsynchronousReplicas, UpdateTogetherAfterEachEvenShare) {
    const Plan plan = plan_with("pipedream", {2, 1}, 8, 0);
    EXPECT_EQ(plan.shape.per_update, 2);
    EXPECT_EQ(row_of(plan, 0), "0F0 0F2 0B0 0S1 0U1 0F4 0B2 0S3 0U3 0F6 0B4 0S5 0U5 0B6 0S7 0U7");
    EXPECT_EQ(row_of(plan, 1), "0F1 0F3 0B1 0S1 0U1 0F5 0B3 0S3 0U3 0F7 0B5 0S5 0U5 0B7 0S7 0U7");
    EXPECT_EQ(row_of(plan, 2), "1F0 1B0 1F1 1B1 1U1 1F2 1B2 1F3 1B3 1U3 1F4 1B4 1F5 1B5 1U5 1F6 1B6 1F7 1B7 1U7");
    EXPECT_EQ(plan_with("pipedream", {3, 2, 1}, 12, 0).shape.per_update, 6);
    EXPECT_EQ(plan_with("pipedream", {4, 2, 1, 1}, 12, 0).shape.per_update, 4);
}

// As many versions as PipeDream keeps for these configurations (msr-fiddle/pipedream 7db6a1c3), and as many
// micro-batches in flight on each input replica as its NOAM, ceil(devices / input replicas).
TEST(AsynchronousReplicas, HoldAsManyVersionsAsPipeDream) {
    const std::pair<Replicas, Replicas> goldens[] = {
        {{1, 1, 1, 1}, {4, 3, 2, 1}}, {{15, 1}, {2, 1}}, {{2, 1, 1}, {2, 2, 1}}, {{4, 2, 1, 1}, {2, 2, 2, 1}}};
    for (const auto& [replicas, held] : goldens) {
        const Plan plan = plan_with("pipedream", replicas, 60, 0);
        EXPECT_EQ(versions_of(plan).held, held);
        const Metrics metrics = metrics_of(simulate(plan, uniform(plan.shape.stages, 1, 1, 1)));
        const int noam = (plan.shape.devices + replicas[0] - 1) / replicas[0];
        for (int device = 0; device < replicas[0]; ++device)
            EXPECT_EQ(metrics.devices[device].peak_in_flight, noam);
        for (int device = 0; device < plan.shape.devices; ++device)
            EXPECT_EQ(metrics.devices[device].weight_versions, held[plan.shape.stages_of(device).front()]);
    }
}

// A holder that runs a forwards ahead has seen the backwards of the micro-batches before i - a r.
TEST(AsynchronousReplicas, ReadTheNewestVersionOfTheirOwnList) {
    for (const Replicas& replicas : all_replicas(4)) {
        const int share = common_multiple(replicas), m = 4 * share;
        const Plan plan = plan_with("pipedream", replicas, m, 0);
        const VersionTable stash = versions_of(plan);
        const VersionTable vertical =
            versions_of(plan_with("pipedream", replicas, m, 0, with_policy(WeightPolicy::VerticalSync)));
        for (int stage = 0; stage < plan.shape.stages; ++stage)
            for (int mb = 0; mb < m; ++mb) {
                const Holding own = Holdings(plan.shape).of(plan.shape.devices_of(stage).front());
                const int newest = std::max(0, mb - lead_of(own) * replicas[stage]) / share;
                EXPECT_EQ(stash.forward[stage][mb], newest);
                EXPECT_EQ(stash.backward[stage][mb], newest);
                EXPECT_EQ(vertical.forward[stage][mb], stash.forward[0][mb]);
                EXPECT_LE(vertical.forward[stage][mb], newest);
            }
    }
}

// Two versions are enough, and the one that a forward reads is there already.
TEST(AsynchronousReplicas, DoubleBufferLagsOneMiniBatch) {
    for (const Replicas& replicas : all_replicas(4)) {
        const int devices = std::accumulate(replicas.begin(), replicas.end(), 0);
        for (const int m : {devices, devices + 1, 2 * devices + 1}) {
            const Plan plan = plan_with("pipedream-2bw", replicas, 4 * m, m);
            const VersionTable table = versions_of(plan);
            const VersionTable newest = [&] {
                Plan stash = plan;
                stash.weights = WeightPolicy::Stash;
                return versions_of(stash);
            }();
            for (int stage = 0; stage < plan.shape.stages; ++stage) {
                EXPECT_LE(table.held[stage], 2);
                for (int k = 0; k < 4 * m; ++k) {
                    EXPECT_EQ(table.forward[stage][k], std::max(k / m - 1, 0));
                    EXPECT_LE(table.forward[stage][k], newest.forward[stage][k]);
                }
            }
        }
    }
    EXPECT_TRUE(contains(refusal([] { plan_with("pipedream-2bw", {2, 1}, 8, 2); }), "take 3 micro-batches or more"));
}

// The plans are proven as they are made.
TEST(AsynchronousReplicas, NeverDeadlockInAnyMode) {
    for (const Replicas& replicas : all_replicas(kSanitized ? 3 : 4))
        for (const auto communicator : {Communicator::Edge, Communicator::Direction, Communicator::One})
            for (const auto receive : {TransferMode::Receive::Early, TransferMode::Receive::Deferred}) {
                PlanOptions options;
                options.transfers = {communicator, receive, TransferMode::Protocol::Rendezvous, true};
                const int share = common_multiple(replicas),
                          devices = std::accumulate(replicas.begin(), replicas.end(), 0);
                ASSERT_NO_THROW(plan_with("pipedream", replicas, 3 * share, 0, options));
                ASSERT_NO_THROW(plan_with("pipedream-2bw", replicas, 3 * devices + 2, devices, options));
            }
}

// The proof, against every interleaving of devices and lanes.
TEST(AsynchronousReplicas, RunThroughInEveryInterleaving) {
    for (const Replicas& replicas : {Replicas{2}, Replicas{2, 1}, Replicas{1, 2}})
        for (const auto communicator : {TransferMode::Communicator::Edge, TransferMode::Communicator::One})
            for (const auto receive : {TransferMode::Receive::Early, TransferMode::Receive::Deferred}) {
                PlanOptions options;
                options.transfers = {communicator, receive, TransferMode::Protocol::Rendezvous, true};
                const Plan plan = plan_with("pipedream", replicas, 4, 0, options);
                EXPECT_TRUE(Oracle(plan, options.transfers).always_ends()) << print(plan);
            }
}

// The slow first stage twice is as fast as the second: a mini-batch of two every two times 3.
TEST(AsynchronousReplicas, OfTheSlowStageTakeItsTimeApart) {
    Costs costs = uniform(2, 2, 2, 2);
    costs.stage[1] = {.forward = 1, .backward = 2, .backward_input = 1, .backward_weight = 1};
    costs.bytes[0].weights = 1000;
    const Plan plan = plan_with("pipedream", {2, 1}, 40, 0);
    const Trace trace = simulate(plan, costs);
    EXPECT_EQ(metrics_of(trace).step_time, 6);
    for (const int device : {0, 1}) {
        const MemoryUse peak = peak_of(memory_of(plan, buffers_of(plan, costs, versions_of(plan)))[device]);
        EXPECT_EQ(peak[static_cast<int>(MemoryKind::Weights)], 1000);
        EXPECT_EQ(peak[static_cast<int>(MemoryKind::StashedWeights)], 1000);
    }
}

}  // namespace
}  // namespace pw
