// Stages on several devices: which device serves a micro-batch, its time and memory, and that no plan of them can get
// stuck.
#include "job/load.h"
#include "job/plan.h"
#include "schedules/csv/csv.h"
#include "schedules/memory/buffers.h"
#include "schedules/passes/passes.h"
#include "schedules/plan/gradient_sums.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/interleavings.h"
#include "tests/support/longest_path.h"
#include "tests/support/refusal.h"
#include "tests/support/shapes.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace pw {
namespace {

using Protocol = TransferMode::Protocol;

constexpr int kMostStages = kSanitized ? 3 : 4;

// Flushed ones; of the others: test_versions.cpp.
std::vector<const Schedule*> schedules_of_replicas() {
    std::vector<const Schedule*> all;
    for (const Schedule& schedule : schedules())
        if (schedule.takes_replicas() && !schedule.asynchronous())
            all.push_back(&schedule);
    return all;
}

std::string name_of_case(const Schedule& schedule, const Replicas& replicas, int m) {
    return fmt::format("{} on {} with {}", schedule.name, fmt::join(replicas, " "), m);
}

const TraceEvent& event_of(const Trace& trace, int device, Op op) {
    return *std::find_if(trace.events.begin(), trace.events.end(),
                         [&](const TraceEvent& event) { return event.device == device && event.task.op == op; });
}

Costs summed(int stages, Ns sum, Ns update) {
    Costs costs = uniform(stages, 10, 20, 10);
    for (StageCost& cost : costs.stage) {
        cost.sum_gradients = sum;
        cost.update = update;
    }
    return costs;
}

TEST(Replicas, OfTheOnlyStageAreDataParallelism) {
    for (const Schedule* schedule : schedules_of_replicas())
        for (const int r : {2, 3, 4})
            for (const int m : {1, 2, 5, 12}) {
                const bool trains = schedule->name != "forward-only";
                const Ns rounds = (m + r - 1) / r;
                const Trace trace = simulate(plan_of(schedule->name, Replicas{r}, m), summed(1, 7, 5));
                EXPECT_EQ(metrics_of(trace).makespan, trains ? rounds * 40 + 7 + 5 : rounds * 10)
                    << name_of_case(*schedule, {r}, m);
            }
}

TEST(Replicas, TakeTurnsAndRunAheadOfLaterDevices) {
    const Plan wide_first = plan_of("1f1b", Replicas{2, 1}, 4);
    EXPECT_EQ(row_of(wide_first, 0), "0F0 0F2 0B0 0B2 0S3 0U3");
    EXPECT_EQ(row_of(wide_first, 1), "0F1 0F3 0B1 0B3 0S3 0U3");
    EXPECT_EQ(row_of(wide_first, 2), "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3 1U3");
    const Plan wide_last = plan_of("1f1b", Replicas{1, 2}, 4);
    EXPECT_EQ(row_of(wide_last, 0), "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3 0U3");
    EXPECT_EQ(row_of(wide_last, 2), "1F1 1B1 1F3 1B3 1S3 1U3");
    EXPECT_EQ(row_of(plan_of("zb-h1", Replicas{1, 2}, 5), 1), "1F0 1I0 1W0 1F2 1I2 1W2 1F4 1I4 1W4 1S4 1U4");
    EXPECT_EQ(row_of(plan_of("gpipe", Replicas{1, 2}, 5), 2), "1F1 1F3 1B1 1B3 1S4 1U4");
}

// The slow first stage twice: as fast as the second one. Device 0 runs F 0-2, 2-4, B 5-9, 11-15; device 1 F
// 0-2, 2-4, B 8-12, 14-18; device 2 starts at 2 and never waits.
TEST(Replicas, OfTheSlowStageTakeItsTimeApart) {
    Costs costs = uniform(2, 2, 2, 2);
    costs.stage[1] = {.forward = 1, .backward = 2, .backward_input = 1, .backward_weight = 1};
    costs.stage[0].sum_gradients = 3;
    costs.stage[0].update = 1;
    const Trace trace = simulate(plan_of("1f1b", Replicas{2, 1}, 4), costs);
    EXPECT_EQ(metrics_of(trace).makespan, 18 + 3 + 1);
    EXPECT_EQ(event_of(trace, 2, Op::Update).start, 14);
}

// PipeDream: stages that take T_s on r_s devices end a micro-batch every max T_s / r_s at best. 1f1b does so with two
// stages; between narrow ones a wide stage waits for its next forward while a backward is ready, which the longer
// warm-up of eager-1f1b makes up for if no stage is wider than the one before it.
TEST(Replicas, EndMicroBatchesAtTheRateOfTheSlowestStage) {
    std::mt19937 random(5);
    const int m = kSanitized ? 30 : 120;
    for (const Replicas& replicas : all_replicas(kMostStages)) {
        Costs costs = uniform(static_cast<int>(replicas.size()), 0, 0, 0);
        double slowest = 0, once = 0;
        for (std::size_t stage = 0; stage < replicas.size(); ++stage) {
            StageCost& cost = costs.stage[stage];
            cost.forward = replicas[stage] * (100 + static_cast<Ns>(random() % 2 * (random() % 40)));
            cost.backward = 2 * cost.forward;
            const auto time = static_cast<double>(cost.forward + cost.backward);
            once += time;
            slowest = std::max(slowest, time / replicas[stage]);
        }
        const auto makespan = [&](const char* schedule) {
            return static_cast<double>(metrics_of(simulate(plan_of(schedule, replicas, m), costs)).makespan);
        };
        const std::string name = fmt::format("{}", fmt::join(replicas, " "));
        EXPECT_GE(makespan("1f1b"), m * slowest) << name;
        EXPECT_LE(makespan("1f1b"), (replicas.size() <= 2 ? 1 : 2) * m * slowest + once) << name;
        if (std::is_sorted(replicas.rbegin(), replicas.rend())) {
            EXPECT_LE(makespan("eager-1f1b"), m * slowest + once) << name;
        }
    }
}

// Micro-batches in flight: the versions that PipeDream's rule keeps for these configurations (msr-fiddle/pipedream
// 7db6a1c3).
TEST(Replicas, KeepAsManyMicroBatchesInFlightAsPipeDreamKeepsVersions) {
    const std::pair<Replicas, std::vector<int>> goldens[] = {
        {{1, 1, 1, 1}, {4, 3, 2, 1}}, {{15, 1}, {2, 1}}, {{2, 1, 1}, {2, 2, 1}}, {{4, 2, 1, 1}, {2, 2, 2, 1}}};
    for (const auto& [replicas, versions] : goldens) {
        const Plan plan = plan_of("1f1b", replicas, 60);
        const Metrics metrics = metrics_of(simulate(plan, uniform(plan.shape.stages, 1, 1, 1)));
        for (int device = 0; device < plan.shape.devices; ++device)
            EXPECT_EQ(metrics.devices[device].peak_in_flight, versions[plan.shape.stages_of(device).front()]);
    }
}

TEST(Replicas, SumWhenTheLastOfThemIsThere) {
    const Plan plan = plan_of("1f1b", Replicas{3, 1}, 7);
    Costs costs = summed(2, 100, 10);
    ClusterEdit(costs)->set_speeds({1, 0.5, 4, 1});
    const Trace trace = simulate(plan, costs);
    Ns last = 0;
    for (const TraceEvent& event : trace.events)
        if (event.task.op == Op::Backward && event.task.stage == 0)
            last = std::max(last, event.end);
    for (const int device : {0, 1, 2}) {
        EXPECT_EQ(event_of(trace, device, Op::SumGradients).start, last);
        EXPECT_EQ(event_of(trace, device, Op::SumGradients).end, last + 100);  // a fast device sends no faster
        EXPECT_EQ(event_of(trace, device, Op::Update).start, last + 100);
    }
}

TEST(Replicas, SumInARing) {
    const Link link{500, 2e9};
    EXPECT_EQ(ring_sum(1, 8'000'000, link), 0);
    EXPECT_EQ(ring_sum(2, 8'000'000, link), 2 * 500 + 4'000'000);
    EXPECT_EQ(ring_sum(4, 8'000'000, link), 6 * 500 + 6'000'000);
    EXPECT_EQ(ring_sum(4, 8'000'000, {500, std::numeric_limits<double>::infinity()}), 3000);
    Costs costs = uniform(2, 1, 1, 1);
    costs.bytes[0].weights = costs.bytes[1].weights = 8'000'000;
    ClusterEdit(costs)->sums = link;
    add_gradient_sums(costs, plan_of("1f1b", Replicas{2, 1}, 2).shape);
    EXPECT_EQ(costs.stage[0].sum_gradients, 4'001'000);
    EXPECT_EQ(costs.stage[1].sum_gradients, 0);
}

TEST(Replicas, WithoutMicroBatchesSumAndUpdateLikeTheOthers) {
    const Plan plan = plan_of("1f1b", Replicas{3, 1}, 2);
    EXPECT_EQ(row_of(plan, 2), "0S1 0U1");
    EXPECT_EQ(row_of(plan_of("forward-only", Replicas{3, 1}, 2), 2), "");
    const Trace trace = simulate(plan, summed(2, 7, 5));
    EXPECT_EQ(event_of(trace, 2, Op::SumGradients).start, event_of(trace, 0, Op::SumGradients).start);
}

TEST(Replicas, HoldTheStageAndTheirOwnMicroBatches) {
    const Replicas replicas{2, 1, 3};
    const int m = 8;
    const Plan plan = plan_of("1f1b", replicas, m);
    Costs costs = uniform(3, 1, 1, 1);
    for (int stage = 0; stage < 3; ++stage) {
        costs.bytes[stage].weights = 1000 * (stage + 1);
        costs.bytes[stage].until_input = 100;
    }
    costs.edges = {{0, 1, 10, 10}, {1, 2, 10, 10}};
    const std::vector<Buffer> buffers = buffers_of(plan, costs, versions_of(plan));
    const auto memory = memory_of(plan, buffers);
    for (int device = 0; device < plan.shape.devices; ++device) {
        const int stage = plan.shape.stages_of(device).front();
        const MemoryUse peak = peak_of(memory[device]);
        for (const MemoryKind kind : {MemoryKind::Weights, MemoryKind::Gradients, MemoryKind::Optimizer})
            EXPECT_EQ(peak[static_cast<int>(kind)], 1000 * (stage + 1)) << device;
        for (const Buffer& buffer : buffers)
            if (buffer.device == device && buffer.microbatch >= 0) {
                EXPECT_EQ(buffer.stage, stage);
                EXPECT_EQ(buffer.microbatch % replicas[stage], device - plan.shape.devices_before(stage));
            }
    }
    const auto activations = [&](int device) {
        return peak_of(memory[device])[static_cast<int>(MemoryKind::Activations)];
    };
    EXPECT_EQ(activations(0), 300);  // (6 - 1) / 2 ahead and one at work
    EXPECT_EQ(activations(2), 400);
    EXPECT_EQ(activations(5), 100);
}

TEST(Replicas, WithoutAnyTaskHoldTheStageAllTheSame) {
    const Plan plan = plan_of("forward-only", Replicas{3, 1}, 2);
    Costs costs = uniform(2, 1, 1, 1);
    costs.bytes[0].weights = 1000;
    ASSERT_TRUE(plan.order[2].empty());
    EXPECT_EQ(total(peak_of(memory_of(plan, buffers_of(plan, costs, versions_of(plan)))[2])), 1000);
    EXPECT_EQ(metrics_of(simulate(plan, costs)).devices[2].peak_memory, 1000);
}

void expect_free_in_every_mode(const Schedule& schedule, const Replicas& replicas, int m) {
    for (const auto communicator : {Communicator::Edge, Communicator::Direction, Communicator::One})
        for (const auto receive : {TransferMode::Receive::Early, TransferMode::Receive::Deferred}) {
            PlanOptions options;
            options.transfers = {communicator, receive, Protocol::Rendezvous, true};
            // proves that each task exists once, in order, and that no tasks wait in a cycle
            ASSERT_NO_THROW(plan_of(schedule.name, replicas, m, options)) << name_of_case(schedule, replicas, m);
        }
}

TEST(Replicas, NeverDeadlockInAnyMode) {
    for (const Schedule* schedule : schedules_of_replicas())
        for (const Replicas& replicas : all_replicas(kMostStages))
            for (const int m : replicas.size() == 4 ? Replicas{5, 12} : Replicas{1, 2, 3, 4, 7, 12}) {
                expect_free_in_every_mode(*schedule, replicas, m);
                if (HasFatalFailure())
                    return;
            }
}

TEST(Replicas, NeverWaitInTheLanesOfTheDefaultMode) {
    for (const Schedule* schedule : schedules_of_replicas())
        for (const Replicas& replicas : all_replicas(kMostStages))
            for (const int m : {1, 5, 12}) {
                const Plan plan = plan_of(schedule->name, replicas, m);
                Costs costs = summed(plan.shape.stages, 9, 4);
                ClusterEdit(costs)->link.latency = 3;
                for (int stage = 0; stage < plan.shape.stages; ++stage)
                    costs.stage[stage].forward += stage * 7 % 11;
                EXPECT_EQ(metrics_of(simulate(plan, costs)).makespan, longest_path(plan, costs))
                    << name_of_case(*schedule, replicas, m);
            }
}

// The proof, against every interleaving of devices and lanes.
TEST(Replicas, RunThroughInEveryInterleaving) {
    for (const Schedule* schedule : schedules_of_replicas())
        for (const Replicas& replicas : {Replicas{3}, Replicas{2, 1}, Replicas{1, 2}, Replicas{2, 2}})
            for (const auto communicator : {Communicator::Edge, Communicator::One})
                for (const auto receive : {TransferMode::Receive::Early, TransferMode::Receive::Deferred}) {
                    PlanOptions options;
                    options.transfers = {communicator, receive, Protocol::Rendezvous, true};
                    const Plan plan = plan_of(schedule->name, replicas, 3, options);
                    EXPECT_TRUE(Oracle(plan, options.transfers).always_ends())
                        << name_of_case(*schedule, replicas, 3) << '\n'
                        << print(plan);
                }
}

TEST(Replicas, AreRefusedWhereAScheduleCannotServeThem) {
    for (const Schedule& schedule : schedules())
        if (!schedule.takes_replicas()) {
            const std::string message = refusal([&] { plan_of(schedule.name, Replicas{2, 2}, 4); });
            expect_says(message, {std::string(schedule.name), "naive, gpipe, 1f1b, eager-1f1b, zb-h1, zb-h2"});
        }
}

Plan planned(const std::string& pipeline) {
    const TemporaryFolder folder;
    folder.write("mine.csv", print_csv(plan_of("gpipe", 2, 5), false));
    const std::string text =
        fmt::format("workload: {{model: uniform, stages: 2}}\npipeline: {{micro_batches: 5, {}}}\n", pipeline);
    return make_plan(load_config(folder.write("cfg.yaml", text), {}), {}, 3);
}

TEST(Replicas, OfAConfigArePlaced) {
    EXPECT_EQ(print(planned("schedule: gpipe, replicas: [2, 1]")), print(plan_of("gpipe", Replicas{2, 1}, 5)));
    EXPECT_EQ(print(planned("schedule: gpipe, replicas: [1, 1]")), print(plan_of("gpipe", 2, 5)));
    expect_says(refusal([] { planned("schedule: interleaved, replicas: [2, 1]"); }),
                {"cfg.yaml:2:", "replicas are for naive, gpipe, 1f1b"});
    expect_says(refusal([] { planned("schedule: mine.csv, replicas: [2, 1]"); }),
                {"cfg.yaml:2:", "determines which devices hold a stage"});
}

std::string refusal_of(const Plan& plan) {
    return refusal([&] { check(plan); });
}

TEST(Replicas, BrokenPlansAreReported) {
    const Plan plan = plan_of("1f1b", Replicas{2, 1}, 4);
    Plan lacks = plan;
    std::erase(lacks.order[1], Task{Op::SumGradients, 0, 3});
    expect_says(refusal_of(lacks), {"no task of device 1 runs 0S3"});
    Plan wrong = plan;
    std::find(wrong.order[1].begin(), wrong.order[1].end(), Task{Op::SumGradients, 0, 3})->microbatch = 2;
    expect_says(refusal_of(wrong), {"device 1", "0S2 should be 0S3"});
    Plan elsewhere = plan_of("gpipe", Replicas{2}, 4);
    std::erase(elsewhere.order[1], Task{Op::Backward, 0, 3});
    elsewhere.order[0].insert(elsewhere.order[0].begin() + 4, {Op::Backward, 0, 3});
    expect_says(refusal_of(elsewhere), {"0B3 belongs on device 1, which serves micro-batch 3 on stage 0"});
}

}  // namespace
}  // namespace pw
