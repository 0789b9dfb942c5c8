// Sums of gradients as messages over the same links as all others. Unless it says otherwise, 1 GB/s: a byte takes 1 ns.
#include "schedules/plan/gradient_sums.h"
#include "sim/simulate.h"
#include "tests/support/dice.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"
#include "workloads/costs/sum_times.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace pw {
namespace {

constexpr Ns kSumLatency = 10;

Costs costs_on_hosts(int stages, const std::vector<int>& host) {
    Costs costs = uniform(stages, 100, 100, 100);
    const Link link{.latency = 5, .bandwidth = 4e9};
    ClusterEdit(costs)->link = link;
    ClusterEdit(costs)->sums = link;
    ClusterEdit(costs)->between_hosts = Link{.latency = kSumLatency, .bandwidth = 1e9};
    ClusterEdit(costs)->host = host;
    return costs;
}

Ns alone(SumAlgorithm algorithm, int holders, Bytes bytes, const Costs& costs) {
    std::vector<int> devices;
    for (int device = 0; device < holders; ++device)
        devices.push_back(device);
    return sum_among(devices, bytes, *costs.cluster, algorithm).alone;
}

// 400 bytes on two hosts of two devices.
TEST(Sums, TakeAsLongAsTheirRoundsByHand) {
    const Costs costs = costs_on_hosts(1, {0, 0, 1, 1});
    // 6 steps of 100 bytes, 110 ns between the hosts.
    EXPECT_EQ(alone(SumAlgorithm::Ring, 4, 400, costs), 6 * 110);
    // Up: device 3 to 1 between hosts, 410; then 2 to 0 between and 1 to 0 inside, 410. Down the same.
    EXPECT_EQ(alone(SumAlgorithm::Tree, 4, 400, costs), 4 * 410);
    // Inside 200 bytes once, 5 + 50. Between 2 steps of 100 bytes, two messages on each way out: 10 + 200. Inside
    // again.
    EXPECT_EQ(alone(SumAlgorithm::TwoLevel, 4, 400, costs), 55 + 2 * 210 + 55);
}

TEST(Sums, HaveClosedFormsOnEqualLinks) {
    Costs costs = uniform(1, 1, 1, 1);
    ClusterEdit(costs)->sums = {.latency = 7, .bandwidth = 1e9};
    for (int holders = 1, levels = 0; holders <= 33; ++holders) {
        levels += holders >= 1 << (levels + 1) ? 1 : 0;  // below the root
        EXPECT_EQ(alone(SumAlgorithm::Ring, holders, 1'000, costs), ring_sum(holders, 1'000, costs.cluster->sums));
        EXPECT_EQ(alone(SumAlgorithm::Tree, holders, 1'000, costs), 2 * levels * 1'007);
        // on one host: all parts, and nothing between
        EXPECT_NEAR(static_cast<double>(alone(SumAlgorithm::TwoLevel, holders, 1'000, costs)),
                    static_cast<double>(ring_sum(holders, 1'000, costs.cluster->sums)), 1);
    }
}

TEST(Sums, ARingGoesThroughAllDevicesOfAHostBeforeItLeavesIt) {
    const std::vector<SumRound> rounds = rounds_of(SumAlgorithm::Ring, {0, 1, 2, 3}, {7, 8, 7, 8});
    ASSERT_EQ(rounds.size(), 1u);
    EXPECT_EQ(rounds[0], (SumRound{{{0, 2, 2}, {2, 1, 2}, {1, 3, 2}, {3, 0, 2}}, 6, 4}));
    // hosts with unequally many devices have no parts in common
    EXPECT_EQ(rounds_of(SumAlgorithm::TwoLevel, {0, 1, 2}, {0, 0, 1}), rounds_of(SumAlgorithm::Ring, {0, 1, 2}, {}));
}

// 400 bytes on two hosts of two devices and two adapters: a step between hosts sends 50 bytes over each.
TEST(Sums, InARingUseAnAdapterForEachDeviceOfAHost) {
    Costs costs = costs_on_hosts(1, {0, 0, 1, 1});
    ClusterEdit(costs)->adapters = 2;
    EXPECT_EQ(alone(SumAlgorithm::Ring, 4, 400, costs), 6 * 60);
    ClusterEdit(costs)->adapters = 8;  // more than there are devices
    EXPECT_EQ(alone(SumAlgorithm::Ring, 4, 400, costs), 6 * 60);
    // Two messages of 100 bytes leave a host in parallel, each through one adapter.
    EXPECT_EQ(alone(SumAlgorithm::TwoLevel, 4, 400, costs), 55 + 2 * 110 + 55);
    EXPECT_EQ(alone(SumAlgorithm::TreeOfHosts, 4, 400, costs), 55 + 2 * 210 + 55);
    // One device of each host: one adapter.
    EXPECT_EQ(sum_among({0, 2}, 400, *costs.cluster, SumAlgorithm::Ring).alone, 2 * 210);
}

// NVIDIA shows 192 GB/s for hosts with eight adapters of 200 Gbit/s and 380 GB/s with 400 Gbit/s: the bus bandwidth of
// an all-reduce of many hosts, 2 (n - 1) / n of the bytes by the time (GTC 2024, S62129). With one adapter for a host
// a prediction would be an eighth of that.
TEST(Sums, HaveTheBusBandwidthOfHostsWithEightAdapters) {
    constexpr Bytes kBytes = Bytes{16} << 30;
    constexpr int kHosts = 16, kGpus = 8 * kHosts;
    for (const auto& [adapter, inside, measured] : {std::array{25e9, 300e9, 192e9}, {50e9, 450e9, 380e9}}) {
        Costs costs = uniform(1, 1, 1, 1);
        std::vector<int> host;
        for (int device = 0; device < kGpus; ++device)
            host.push_back(device / 8);
        ClusterEdit(costs)->host = host;
        ClusterEdit(costs)->link = ClusterEdit(costs)->sums = Link{.latency = 3'400, .bandwidth = inside};
        ClusterEdit(costs)->between_hosts = Link{.latency = 14'000, .bandwidth = adapter};
        ClusterEdit(costs)->adapters = 8;
        const auto time = static_cast<double>(alone(SumAlgorithm::Ring, kGpus, kBytes, costs));
        const double bus = 2.0 * (kGpus - 1) / kGpus * static_cast<double>(kBytes) / time * 1e9;
        EXPECT_NEAR(bus / measured, 1, 0.03) << adapter;
    }
}

// A ring of four on a bus: each step is four messages at a quarter each.
TEST(Sums, ShareABusWithThemselves) {
    Costs costs = uniform(1, 1, 1, 1);
    ClusterEdit(costs)->sums = {.latency = 7, .bandwidth = 1e9};
    ClusterEdit(costs)->shared.push_back({Capacity::Of::Touching, {0, 1, 2, 3}, 1e9});
    EXPECT_EQ(alone(SumAlgorithm::Ring, 4, 400, costs), 6 * (7 + 400));
}

struct SumTimes {
    Ns gradients_arrive = 0, sum_starts = 0, sum_ends = 0;
};

// The times of the last stage's S, and of the gradients on the stage before it.
SumTimes times_of(const Plan& plan, const Costs& costs) {
    SumTimes times;
    for (const TraceEvent& event : simulate(plan, costs).events) {
        if (event.task.op == Op::RecvBackward)
            times.gradients_arrive = std::max(times.gradients_arrive, event.end);
        if (event.task.op == Op::SumGradients && event.task.stage + 1 == plan.shape.stages) {
            times.sum_starts = event.start;
            times.sum_ends = event.end;
        }
    }
    return times;
}

// Two stages on two devices each, all on hosts of their own. Stage 1 has its gradients at 410: forwards end at 100,
// they come 10 later without bytes, 100 forward and 200 backward. Then 100 bytes go back from each device of stage 1,
// and its sum begins, two steps of 100 bytes in a ring of two.
TEST(Sums, ShareLinksWithMessages) {
    const Plan plan = plan_of("gpipe", Replicas{2, 2}, 2);
    Costs costs = costs_on_hosts(2, {0, 1, 2, 3});
    costs.edges.push_back({0, 1, 0, 100});
    costs.bytes[1].weights = 200;
    add_gradient_sums(costs, plan.shape);
    EXPECT_EQ(costs.stage[1].sum_gradients, 220);
    // Both have half of the way out until 610; they are there at 620. The second step goes alone: 100 + 10.
    const SumTimes times = times_of(plan, costs);
    EXPECT_EQ(times.gradients_arrive, 620);
    EXPECT_EQ(times.sum_starts, 410);
    EXPECT_EQ(times.sum_ends, 730);
    // Without messages at the same time the sum takes its own time.
    costs.edges[0].backward = 0;
    EXPECT_EQ(times_of(plan, costs).sum_ends, 410 + 220);
}

// Stage 1 is on three hosts: 300 bytes in a ring are four steps of 100 bytes, 110 each. Its devices get their
// micro-batches at 110, 210 and 310, so that the last has its gradient at 610 and the sum begins. Then only the last
// micro-batch's 50 bytes are on their way, out of the third host: half each until 710, when 50 bytes of the third
// device's first step are left. The others of that step are there at 720; the step ends with it, at 770.
TEST(Sums, OfThreeHostsInARingWaitForTheSlowestMessageOfAStep) {
    const Plan plan = plan_of("gpipe", Replicas{1, 3}, 3);
    Costs costs = costs_on_hosts(2, {0, 1, 2, 3});
    costs.edges.push_back({0, 1, 0, 50});
    costs.bytes[1].weights = 300;
    add_gradient_sums(costs, plan.shape);
    EXPECT_EQ(costs.stage[1].sum_gradients, 440);
    const SumTimes times = times_of(plan, costs);
    EXPECT_EQ(times.gradients_arrive, 720);
    EXPECT_EQ(times.sum_starts, 610);
    EXPECT_EQ(times.sum_ends, 770 + 3 * 110);
}

// 400 bytes in buckets of 100 are four buckets, if a run overlaps sums with the backward: each holder has one stage,
// which shares no parameters.
TEST(Sums, ComeInBucketsOnlyWhereARunDoesThat) {
    Costs costs = costs_on_hosts(2, {0, 1, 2, 3});
    costs.sum_bucket = 100;
    for (StageBytes& bytes : costs.bytes)
        bytes.weights = 400;
    const auto buckets_of_stages = [&](const Shape& shape) {
        add_gradient_sums(costs, shape);
        return std::vector{costs.stage_sums[0].buckets, costs.stage_sums[1].buckets};
    };
    Shape shape = plan_of("gpipe", Replicas{2, 2}, 4).shape;
    EXPECT_EQ(buckets_of_stages(shape), (std::vector{4, 4}));
    shape.placement = {{0, 1}, {1, 2}};  // device 1 has both
    EXPECT_EQ(buckets_of_stages(shape), (std::vector{1, 1}));
    shape.placement = {{0, 1}, {2}};
    EXPECT_EQ(buckets_of_stages(shape), (std::vector{4, 1}));
    shape.ties = {{0, 1}};
    EXPECT_EQ(buckets_of_stages(shape), (std::vector{1, 1}));
}

// Two stages on two devices each, on hosts of their own: 200 bytes of weights, an update of 40. The sum of halves is
// one step of 100 bytes, and so is the exchange of the halves after half of the update.
TEST(Sums, OfAShardedOptimizerAreCutInTwoHalves) {
    const Plan plan = plan_of("gpipe", Replicas{2, 2}, 2);
    Costs costs = costs_on_hosts(2, {0, 1, 2, 3});
    costs.zero = 1;
    costs.edges.push_back({0, 1, 0, 100});
    costs.bytes[1].weights = 200;
    costs.stage[1].update = 41;
    add_gradient_sums(costs, plan.shape);
    EXPECT_EQ(costs.stage[1].sum_gradients, 110);
    EXPECT_EQ(costs.stage[1].update, 21);
    EXPECT_EQ(costs.stage[1].gather_weights, 110);
    // As above, at the same time as the gradients: both leave at 610. Then half of the update and a step alone.
    const auto end_of = [&](Op op) {
        for (const TraceEvent& event : simulate(plan, costs).events)
            if (event.task.stage == 1 && event.task.op == op)
                return event.end;
        return Ns{-1};
    };
    EXPECT_EQ(end_of(Op::SumGradients), 620);
    EXPECT_EQ(end_of(Op::Update), 620 + 21 + 110);
    // In one pass, where nothing is shared.
    costs.edges[0].backward = 0;
    EXPECT_EQ(end_of(Op::Update), 410 + 110 + 21 + 110);
    const Trace trace = simulate(plan, costs);
    EXPECT_EQ(trace.memory.back().use[static_cast<std::size_t>(MemoryKind::Optimizer)], aligned(100));
    EXPECT_EQ(trace.memory.back().use[static_cast<std::size_t>(MemoryKind::Gradients)], 200);
}

// The same stages with ZeRO-2 and 3, by hand. A sum in parts, or a gather, is one step of 128 bytes, 138 ns. In four
// buckets it is four steps of 32 bytes, 168 ns, of which the first or the last 42 ns overlap no pass. A forward of 100
// ns has 75 ns for the other 126 ns, a backward of 200 ns has 150 ns.
TEST(Sums, OfDividedGradientsAndWeightsAreInThePasses) {
    struct Case {
        int zero;
        Bytes bucket;
        Ns forward, backward, sum, update;
        Bytes weights, gradients, workspace;
    };
    for (const Case& hand :
         {Case{1, 0, 100, 200, 138, 20 + 138, 256, 256, 0}, Case{2, 0, 100, 200 + 138, 0, 20 + 138, 256, 128, 256},
          Case{3, 0, 100 + 138, 200 + 2 * 138, 0, 20, 128, 128, 256 + 256},
          Case{2, 64, 100, 200 + 42, 0, 20 + 138, 256, 128, 128},
          Case{3, 64, 100 + 42 + 51, 200 + 2 * 42, 0, 20, 128, 128, 128 + 128}}) {
        SCOPED_TRACE(fmt::format("ZeRO-{} in buckets of {}", hand.zero, hand.bucket));
        const Plan plan = plan_of("gpipe", Replicas{2, 2}, 4);
        Costs costs = costs_on_hosts(2, {0, 1, 2, 3});
        costs.zero = hand.zero;
        costs.sum_bucket = hand.bucket;
        costs.bytes[1].weights = 256;
        costs.stage[1].forward = 100;
        costs.stage[1].backward = 200;
        costs.stage[1].update = 40;
        add_gradient_sums(costs, plan.shape);
        const Trace trace = simulate(plan, costs);
        for (const TraceEvent& event : trace.events)
            if (event.task.stage == 1) {
                const Ns took = event.end - event.start;
                if (event.task.op == Op::Forward)
                    EXPECT_EQ(took, hand.forward);
                if (event.task.op == Op::Backward)
                    EXPECT_EQ(took, hand.backward);
                if (event.task.op == Op::SumGradients && hand.bucket == 0)
                    EXPECT_EQ(took, hand.sum);
                if (event.task.op == Op::Update)
                    EXPECT_EQ(took, hand.update);
            }
        const auto held = [&](MemoryKind kind) { return trace.memory.back().use[static_cast<std::size_t>(kind)]; };
        EXPECT_EQ(held(MemoryKind::Weights), hand.weights);
        EXPECT_EQ(held(MemoryKind::Gradients), hand.gradients);
        EXPECT_EQ(held(MemoryKind::Workspace), hand.workspace);
    }
}

// Each of n buckets is full at a part of the pass, and is summed when the one before it is.
TEST(Sums, InBucketsOverlapTheBackward) {
    Random random(25);
    for (int round = 0; round < rounds(400); ++round) {
        const Ns buckets = pick(random, 1, 9), part = pick(random, 0, 400), bytes = pick(random, 1, 200);
        const Plan plan = plan_of("gpipe", Replicas{2}, 2 * pick(random, 1, 3));
        Costs costs = costs_on_hosts(1, {0, 1});
        costs.dispatch = pick(random, 0, 9);
        costs.stage[0].backward = buckets * part;
        costs.bytes[0].weights = buckets * 2 * bytes;
        costs.sum_bucket = 2 * bytes;
        add_gradient_sums(costs, plan.shape);
        const Ns of_one = 2 * (kSumLatency + bytes);
        Ns ended = 0;
        for (Ns bucket = 1; bucket <= buckets; ++bucket)
            ended = std::max(ended, bucket * part) + of_one;
        for (const TraceEvent& event : simulate(plan, costs).events)
            if (event.task.op == Op::SumGradients) {
                ASSERT_EQ(event.end - event.start, ended - buckets * part + costs.dispatch)
                    << buckets << " buckets of " << bytes << " against " << part;
            }
    }
}

// Two devices of stage 1 hold 6 GB of gradients, 240 buckets, and sum them at 10 GB/s: 600 ms from the first full
// bucket on. The last backward is from 950 to 1050 ms and its gradient leaves until 1130: an exchange that blocks holds
// S until then, but not the buckets.
TEST(Sums, InBucketsDoNotWaitForAnExchange) {
    PlanOptions options;
    options.transfers.exchange = TransferMode::Exchange::Blocking;
    const Plan plan = plan_of("1f1b", Replicas{2, 2}, 8, options);
    constexpr Ns kMs = 1'000'000;
    Costs costs = uniform(2, 50 * kMs, 50 * kMs, 50 * kMs);
    costs.edges = {{0, 1, 800'000'000, 800'000'000}};
    const Link link{.latency = 0, .bandwidth = 10e9};
    ClusterEdit(costs)->link = link;
    ClusterEdit(costs)->sums = link;
    costs.bytes[1].weights = 6'000'000'000;
    costs.sum_bucket = 25'000'000;
    add_gradient_sums(costs, plan.shape);
    for (const TraceEvent& event : simulate(plan, costs, options.transfers).events)
        if (event.task.op == Op::SumGradients && event.task.stage == 1) {
            EXPECT_EQ(event.start, 1130 * kMs);
            EXPECT_NEAR(static_cast<double>(event.end), 950e6 + 100e6 / 240 + 600e6, 2);
        }
}

// Two buckets of 100 bytes: the first is full at 100 in the middle of the backward of 200, and is two steps of 60 then.
// Its messages take a fifth of both devices, so that the rest of the backward, 100, takes 125; the second bucket is
// summed from 225 on.
TEST(Sums, InBucketsTakeAPartOfTheDevices) {
    const Plan plan = plan_of("gpipe", Replicas{2}, 2);
    Costs costs = costs_on_hosts(1, {0, 1});
    costs.stage[0].forward = 0;
    costs.stage[0].backward = 200;
    costs.bytes[0].weights = 200;
    costs.sum_bucket = 100;
    costs.mover_share = 0.2;
    add_gradient_sums(costs, plan.shape);
    for (const TraceEvent& event : simulate(plan, costs).events) {
        if (event.task.op == Op::Backward) {
            EXPECT_EQ(event.end - event.start, 225);
        }
        if (event.task.op == Op::SumGradients) {
            EXPECT_EQ(event.end - event.start, 2 * (kSumLatency + 50));
        }
    }
}

// As in ShareLinksWithMessages, in two buckets: each is two steps of 50 bytes, 60 ns each, and the first is full
// at 310, the middle of stage 1's backward.
TEST(Sums, InBucketsShareLinksWithMessages) {
    const Plan plan = plan_of("gpipe", Replicas{2, 2}, 2);
    Costs costs = costs_on_hosts(2, {0, 1, 2, 3});
    costs.edges.push_back({0, 1, 0, 100});
    costs.bytes[1].weights = 200;
    costs.sum_bucket = 100;
    add_gradient_sums(costs, plan.shape);
    // At 410 the second step has 10 bytes left; they share with the gradients until 430 and are there at 440. The third
    // goes at half the rate until 540, the fourth, from 550, as well until 590, when the gradients have left, and has
    // 30 bytes left then.
    const SumTimes times = times_of(plan, costs);
    EXPECT_EQ(times.gradients_arrive, 600);
    EXPECT_EQ(times.sum_starts, 410);
    EXPECT_EQ(times.sum_ends, 630);
    costs.edges[0].backward = 0;
    EXPECT_EQ(times_of(plan, costs).sum_ends, 310 + 4 * 60);
}

// Step by step in the queue of events, where delays count in whole nanoseconds, against all at once.
TEST(Sums, TakeAsLongByTheirStepsAsTheySay) {
    Random random(18);
    for (int round = 0; round < rounds(400); ++round) {
        const int holders = pick(random, 2, 9);
        const Plan plan = plan_of("gpipe", Replicas{holders}, holders);
        std::vector<int> host;
        for (int device = 0; device < holders; ++device)
            host.push_back(pick(random, 0, 1) ? device / 2 : pick(random, 0, 2));
        Costs costs = costs_on_hosts(1, host);
        ClusterEdit(costs)->sums.half_size = pick(random, 0, 1) * pick(random, 1, 500);
        ClusterEdit(costs)->between_hosts->bandwidth = 1e9 / pick(random, 1, 7);
        costs.bytes[0].weights = pick(random, 0, 5'000);
        costs.stage[0].backward = pick(random, 0, 20'000);
        costs.sum_bucket = pick(random, 0, 2) == 0 ? pick(random, 500, 3'000) : 0;
        std::vector<int> members;
        for (int device = 0; device < holders; ++device)
            if (pick(random, 0, 1))
                members.push_back(device);
        if (!members.empty())
            ClusterEdit(costs)->shared.push_back(
                {static_cast<Capacity::Of>(pick(random, 0, 2)), members, 1e9 / pick(random, 1, 7)});
        if (pick(random, 0, 1))
            ClusterEdit(costs)->own_links[{0, 1}] = {.latency = pick(random, 0, 30),
                                                     .bandwidth = 1e9 / pick(random, 1, 9)};
        const auto algorithm = static_cast<SumAlgorithm>(pick(random, 0, 2));
        add_gradient_sums(costs, plan.shape, {}, algorithm);
        Simulator simulator(plan, {});
        const Trace at_once = simulator.trace(costs), by_steps = simulator.trace_by_events(costs);
        for (std::size_t event = 0; event < at_once.events.size(); ++event)
            ASSERT_NEAR(
                static_cast<double>(at_once.events[event].end), static_cast<double>(by_steps.events[event].end),
                2 * holders * costs.stage_sums[0].buckets + 2e-4 * static_cast<double>(costs.stage[0].sum_gradients))
                << name_of(algorithm) << " round " << round;
    }
}

// The last backward of stage 1 is from 2810 to 3810 us. Its second bucket is full at the end and takes 500 us. An
// exchange that blocks holds S until 4210.
TEST(Sums, OfALastBucketDoesNotWaitForAnExchange) {
    PlanOptions options;
    options.transfers.exchange = TransferMode::Exchange::Blocking;
    const Plan plan = plan_of("gpipe", Replicas{2, 2}, 4, options);
    constexpr Ns kUs = 1'000;
    Costs costs = uniform(2, 10 * kUs, 20 * kUs, 0);
    costs.stage[1].forward = 500 * kUs;
    costs.stage[1].backward = costs.stage[1].backward_input = 1000 * kUs;
    costs.edges = {{0, 1, 400'000, 400'000}};
    const Link link{.latency = 0, .bandwidth = 1e9};
    ClusterEdit(costs)->link = link;
    ClusterEdit(costs)->sums = link;
    costs.bytes[1].weights = 1'000'000;
    costs.sum_bucket = 500'000;
    add_gradient_sums(costs, plan.shape);
    Simulator simulator(plan, options.transfers);
    const Trace trace = simulator.trace(costs);
    for (const TraceEvent& event : trace.events)
        if (event.task.op == Op::SumGradients && event.task.stage == 1) {
            EXPECT_EQ(event.start, 4210 * kUs);
            EXPECT_EQ(event.end, 4310 * kUs);
        }
    EXPECT_EQ(simulator.trace_by_events(costs), trace);
}

}  // namespace
}  // namespace pw
