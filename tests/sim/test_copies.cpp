// Replicas of a whole pipeline, whose devices may hold several stages: each is the pipeline alone with its share of the
// micro-batches, and the holders of a stage sum their gradients.
#include "job/load.h"
#include "job/plan.h"
#include "schedules/memory/buffers.h"
#include "schedules/orders/copies.h"
#include "schedules/plan/gradient_sums.h"
#include "schedules/plan/sum_groups.h"
#include "sim/metrics.h"
#include "sim/simulate.h"
#include "tests/support/bidirectional.h"
#include "tests/support/interleavings.h"
#include "tests/support/refusal.h"
#include "tests/support/shapes.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pw {
namespace {

using Lists = std::vector<std::vector<int>>;

Shape copied(const Schedule& schedule, int copies, int devices, int microbatches, int chunks) {
    Shape shape = shape_of(schedule, devices, microbatches, chunks);
    shape.copies = copies;
    shape.devices *= copies;
    return shape;
}

// Every schedule that flushes, with several stages per device where it places them so.
struct Placed {
    const Schedule* schedule;
    int chunks;
};
std::vector<Placed> flushed_schedules() {
    std::vector<Placed> all;
    for (const Schedule& schedule : schedules())
        if (!schedule.asynchronous())
            for (const int chunks : {1, 2, 3})
                if (schedule.placement.fits(2 * chunks, 2))
                    all.push_back({&schedule, chunks});
    return all;
}

Costs costs_by_stage(int stages, Ns latency) {
    Costs costs = uniform(stages, 10, 20, 10, latency);
    for (int stage = 0; stage < stages; ++stage) {
        costs.stage[stage].forward += 3 * stage % 7;
        costs.stage[stage].update = 5;
        costs.bytes[stage].weights = 1000 * (stage + 1);
        costs.bytes[stage].until_input = 100 + stage;
        costs.bytes[stage].until_weight = 10;
        if (stage > 0)
            costs.edges.push_back({stage - 1, stage, 10, 20});
    }
    return costs;
}

TEST(Copies, ArePlacedOneAfterTheOtherOnEveryDevice) {
    EXPECT_EQ(placed(schedule_named("interleaved"), copied(schedule_named("interleaved"), 2, 2, 8, 2)).placement,
              (Lists{{0, 1}, {2, 3}, {0, 1}, {2, 3}}));
    EXPECT_EQ(placed(schedule_named("zb-v"), copied(schedule_named("zb-v"), 3, 2, 9, 2)).placement,
              (Lists{{0, 1, 2}, {3, 4, 5}, {3, 4, 5}, {0, 1, 2}}));
}

// The pipeline alone runs 0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1 on its first device.
TEST(Copies, TakeTurnsWithTheMicroBatches) {
    const Plan plan = plan_in(schedule_named("interleaved"), copied(schedule_named("interleaved"), 2, 2, 4, 2));
    EXPECT_EQ(row_of(plan, 0), "0F0 0F2 2F0 2F2 2B0 2B2 2S3 2U3 0B0 0B2 0S3 0U3");
    EXPECT_EQ(row_of(plan, 1), "0F1 0F3 2F1 2F3 2B1 2B3 2S3 2U3 0B1 0B3 0S3 0U3");
    EXPECT_EQ(row_of(plan, 2), "1F0 1F2 3F0 3B0 3F2 3B2 3S3 3U3 1B0 1B2 1S3 1U3");
    EXPECT_EQ(row_of(plan, 3), "1F1 1F3 3F1 3B1 3F3 3B3 3S3 3U3 1B1 1B3 1S3 1U3");
    const Plan uneven = plan_in(schedule_named("bfs"), copied(schedule_named("bfs"), 2, 1, 3, 2));
    EXPECT_EQ(row_of(uneven, 0), "0F0 0F2 1F0 1F2 1B2 1B0 1S2 1U2 0B2 0B0 0S2 0U2");
    EXPECT_EQ(row_of(uneven, 1), "0F1 1F1 1B1 0B1 1S2 1U2 0S2 0U2");
    const Plan idle = plan_in(schedule_named("zb-v"), copied(schedule_named("zb-v"), 2, 1, 1, 2));
    EXPECT_EQ(row_of(idle, 1), "1S0 1U0 0S0 0U0");
}

// [pipeline device][task]: the task's times.
using TimesByDevice = std::vector<std::map<Task, std::pair<Ns, Ns>>>;

// The times of one copy, with its own devices and micro-batches, without S.
TimesByDevice times_of(const Trace& trace, int devices, int copies, int copy) {
    TimesByDevice times(static_cast<std::size_t>(devices));
    for (const TraceEvent& event : trace.events)
        if (event.device % copies == copy && event.task.op != Op::SumGradients) {
            Task task = event.task;
            task.microbatch = task.op == Op::Update ? 0 : task.microbatch / copies;
            times[static_cast<std::size_t>(event.device / copies)][task] = {event.start, event.end};
        }
    return times;
}

TEST(Copies, WithoutSumsTakeTheTimeAndMemoryOfThePipelineAlone) {
    for (const auto& [schedule, chunks] : flushed_schedules())
        for (const int copies : {2, 3})
            for (const int p : {1, 2, 3})
                for (const int rounds : {1, 2}) {
                    const int m = rounds * p;
                    const std::optional<Plan> defined = try_plan(*schedule, shape_of(*schedule, p, m, chunks));
                    if (!defined)
                        continue;
                    const Plan& alone = *defined;
                    const Plan plan = plan_in(*schedule, copied(*schedule, copies, p, copies * m, chunks));
                    const Costs costs = costs_by_stage(p * chunks, 3);
                    const Trace once = simulate(alone, costs), all = simulate(plan, costs);
                    const auto memory = memory_of(plan, buffers_of(plan, costs, versions_of(plan))),
                               own = memory_of(alone, buffers_of(alone, costs, versions_of(alone)));
                    for (int copy = 0; copy < copies; ++copy)
                        EXPECT_TRUE(times_of(all, p, copies, copy) == times_of(once, p, 1, 0))
                            << schedule->name << " " << p << " x " << copies << ", " << m << " each";
                    for (int device = 0; device < plan.shape.devices; ++device)
                        EXPECT_EQ(peak_of(memory[device]), peak_of(own[device / copies]))
                            << schedule->name << " device " << device;
                }
}

// F takes 10, B 30, S 7, U 5. Device 0: 0F0 0-10, 0F2 10-20, 2F0 20-30, 2F2 30-40; device 2: 1F0 10-20, 1F2 20-30, 3F0
// 30-40, 3B0 40-70, 3F2 70-80, 3B2 80-110, 3S 110-117, 3U 117-122. Then 2B0 70-100, 2B2 110-140, 2S 140-147, 2U
// 147-152; 1B0 122-152, 1B2 152-182, 1S and 1U until 194; 0B0 152-182, 0B2 182-212, 0S 212-219, 0U 219-224.
TEST(Copies, SumTheGradientsOfEveryStage) {
    const Plan plan = plan_in(schedule_named("interleaved"), copied(schedule_named("interleaved"), 2, 2, 4, 2));
    Costs costs = uniform(4, 10, 20, 10);
    for (StageCost& cost : costs.stage) {
        cost.sum_gradients = 7;
        cost.update = 5;
    }
    std::map<std::pair<int, int>, std::pair<Ns, Ns>> sums;  // (device, stage)
    const Trace trace = simulate(plan, costs);
    for (const TraceEvent& event : trace.events)
        if (event.task.op == Op::SumGradients)
            sums[{event.device, event.task.stage}] = {event.start, event.end};
    EXPECT_EQ(sums.size(), 8u);
    for (const int copy : {0, 1}) {
        EXPECT_EQ((sums[{2 + copy, 3}]), std::pair(Ns{110}, Ns{117}));
        EXPECT_EQ((sums[{copy, 2}]), std::pair(Ns{140}, Ns{147}));
        EXPECT_EQ((sums[{2 + copy, 1}]), std::pair(Ns{182}, Ns{189}));
        EXPECT_EQ((sums[{copy, 0}]), std::pair(Ns{212}, Ns{219}));
    }
    EXPECT_EQ(metrics_of(trace).makespan, 224);
}

// A ring of two devices sends half of the bytes twice: 4 MB and 1 us of latency per stage, as if it were alone.
TEST(Copies, SumOverTheLinksOfTheirDevices) {
    Costs costs = uniform(4, 1, 1, 1);
    for (StageBytes& bytes : costs.bytes)
        bytes.weights = 8'000'000;
    ClusterEdit(costs)->sums = {500, 2e9};
    add_gradient_sums(costs, placed(schedule_named("zb-v"), copied(schedule_named("zb-v"), 2, 2, 4, 2)));
    for (const StageCost& cost : costs.stage)
        EXPECT_EQ(cost.sum_gradients, 2 * 500 + 4'000'000);
}

// eager-1f1b and zb-h2 round the warm-up of replicas of a stage down only once: it may be one micro-batch longer.
TEST(Copies, WithOneStagePerDeviceAreReplicasOfEveryStage) {
    for (const Schedule& schedule : schedules())
        if (schedule.takes_replicas() && schedule.name != "eager-1f1b" && schedule.name != "zb-h2")
            for (const int copies : {2, 3})
                for (const int p : {1, 2, 4}) {
                    const int m = 4 * p * copies;
                    Shape shape = shape_of(Replicas(static_cast<std::size_t>(p), copies), m),
                          copy = copied(schedule, copies, p, m, 1);
                    if (schedule.updates == Updates::PerMiniBatch)
                        shape.per_update = copy.per_update = p * copies;
                    const Plan listed = make_plan(schedule, shape), plan = make_plan(schedule, copy);
                    EXPECT_EQ(print(plan), print(listed)) << schedule.name;
                    EXPECT_EQ(hash_of(plan), hash_of(listed)) << schedule.name;
                }
    EXPECT_EQ(row_of(plan_of("eager-1f1b", Replicas{2}, 4), 0), "0F0 0F2 0B0 0B2 0S3 0U3");
    EXPECT_EQ(row_of(plan_in(schedule_named("eager-1f1b"), copied(schedule_named("eager-1f1b"), 2, 1, 4, 1)), 0),
              "0F0 0B0 0F2 0B2 0S3 0U3");
}

bool is_for_some_shapes(const Schedule& schedule) {
    const std::string_view names[] = {"chimera", "dualpipe", "dualpipe-v", "auto-bidirectional"};
    return schedule.option == "group" || std::ranges::find(names, schedule.name) != std::end(names);
}

TEST(Copies, NeverDeadlockInAnyMode) {
    for (const auto& [schedule, chunks] : flushed_schedules())
        for (const int copies : {2, 3})
            for (const int p : {1, 2, 3})
                for (const int m : {1, 2, 3, 4, 5, 7, 12})
                    for (const auto communicator : {Communicator::Edge, Communicator::Direction, Communicator::One})
                        for (const auto receive : {TransferMode::Receive::Early, TransferMode::Receive::Deferred}) {
                            PlanOptions options;
                            options.transfers = {communicator, receive, TransferMode::Protocol::Rendezvous, true};
                            // proves each plan, or names settings where the schedule is not defined
                            const Shape shape = copied(*schedule, copies, p, m, chunks);
                            EXPECT_TRUE(try_plan(*schedule, shape, options) || is_for_some_shapes(*schedule))
                                << schedule->name << " " << p << " x " << copies << ", " << m;
                        }
}

// The proof, against every interleaving of devices and lanes.
TEST(Copies, RunThroughInEveryInterleaving) {
    for (const char* name : {"bfs", "zb1p", "zb-v", "interleaved"})
        for (const int p : {1, 2})
            for (const auto communicator : {Communicator::Edge, Communicator::One}) {
                PlanOptions options;
                options.transfers = {communicator, TransferMode::Receive::Early, TransferMode::Protocol::Rendezvous,
                                     true};
                const Plan plan = plan_in(schedule_named(name), copied(schedule_named(name), 2, p, 4 - p, 2), options);
                EXPECT_TRUE(Oracle(plan, options.transfers).always_ends()) << name << '\n' << print(plan);
            }
}

// Two pipelines, each in both directions: copy 1 serves micro-batches 1, 3, 5, 7, and sends 1 and 5 down, 3 and 7 up.
TEST(Copies, OfAScheduleWithTwoDirectionsHaveBothDirections) {
    Shape shape = shape_both_ways(4);
    shape.copies = 2;
    shape.devices = 8;
    shape.microbatches = 8;
    const Plan plan = make_plan(kBidirectional, shape);
    EXPECT_EQ(plan.shape.placement, (Lists{{0, 1, 6, 7}, {2, 3, 4, 5}, {2, 3, 4, 5}, {0, 1, 6, 7}}));
    for (int stage = 0; stage < 4; ++stage)
        for (int mb = 0; mb < 8; ++mb)
            EXPECT_EQ(plan.shape.server_of(stage, mb), 2 * (mb / 2 % 2 == 0 ? stage : 3 - stage) + mb % 2);
    EXPECT_EQ(row_of(plan, 1).substr(0, 23), "0F1 0F5 3F3 3B3 3F7 3B7");
}

// A schedule that orders by costs gets those of the slower device of each two: as if they were all as fast.
TEST(Copies, AreOrderedByTheCostsOfTheirSlowestDevices) {
    const Schedule& schedule = schedule_named("zb-v");
    const Shape alone = placed(schedule, shape_of(schedule, 2, 4, 2));
    const Shape both = placed(schedule, copied(schedule, 2, 2, 8, 2));
    Costs costs = costs_by_stage(4, 7);
    ClusterEdit(costs)->set_speeds({1, 0.5, 2, 4});
    const OrderCosts one = costs_of_copies(order_costs(both, costs, {1, 2, 4, 3}), 2);
    ClusterEdit(costs)->set_speeds({0.5, 2});
    const OrderCosts own = order_costs(alone, costs, {1, 3});
    EXPECT_EQ(one.memory, own.memory);
    EXPECT_EQ(one.messages, own.messages);
    EXPECT_EQ(one.times, own.times);
}

// In two buckets, alone: the first is full when half of the last B is over. The sums of 20 end 10 after it.
TEST(Copies, SumInBucketsDuringTheLastBackwardOfEachStage) {
    const Plan plan = plan_in(schedule_named("bfs"), copied(schedule_named("bfs"), 2, 1, 4, 2));
    EXPECT_EQ(row_of(plan, 1), "0F1 0F3 1F1 1F3 1B3 1B1 1S3 1U3 0B3 0B1 0S3 0U3");
    Costs costs = uniform(2, 10, 20, 10);
    for (StageBytes& bytes : costs.bytes)
        bytes.weights = 20;
    ClusterEdit(costs)->sums = {0, 1e9};
    costs.sum_bucket = 10;
    add_gradient_sums(costs, plan.shape);
    // without buckets 40 of F, two stages of 60 and 20
    EXPECT_EQ(metrics_of(simulate(plan, costs)).makespan, 40 + 2 * (60 + 10));
    const Shape unequal = placed(schedule_named("bfs"), copied(schedule_named("bfs"), 2, 1, 3, 2));
    EXPECT_FALSE(may_overlap_sum(unequal, 0)) << "the second has one micro-batch less";
}

TEST(Copies, AreRefusedWhereTheScheduleCannotHaveThem) {
    expect_says(refusal([] {
                    Schedule never = schedule_named("interleaved");
                    never.name = "never";
                    never.updates = Updates::PerMicroBatch;
                    (void)make_plan(never, copied(never, 2, 2, 8, 2));
                }),
                {"never flushes"});
    Shape odd = copied(schedule_named("zb-v"), 2, 2, 8, 2);
    odd.devices = 5;
    expect_says(refusal([&] { (void)make_plan(schedule_named("zb-v"), odd); }),
                {"5 devices for 2 replicas", "set the number of devices to 6"});
    expect_says(refusal([&] { (void)make_plan(schedule_named("zb-v"), copied(schedule_named("zb-v"), 2, 2, 8, 3)); }),
                {"6 stages on 2 devices of each replica do not fit", "set the number of stages to 4"});
    expect_says(refusal([&] {
                    (void)make_plan(schedule_named("interleaved"), copied(schedule_named("interleaved"), 2, 2, 10, 2));
                }),
                {"replica 0 of 2: 5 micro-batches on 2 devices", "in each replica: take 4 or 6 micro-batches"});
}

Config config_of(const std::string& stages, const std::string& pipeline, const std::string& cluster = "") {
    const TemporaryFolder folder;
    return load_config(
        folder.write("cfg.yaml", fmt::format("workload: {{model: uniform, stages: {}}}\n{}pipeline: {{{}}}\n", stages,
                                             cluster, pipeline)),
        {});
}

TEST(Copies, OfAConfigAreANumberOfReplicas) {
    const Config config = config_of("4", "schedule: interleaved, replicas: 2, micro_batches: 8");
    EXPECT_EQ(config.cluster.devices.size(), 4u);
    EXPECT_EQ(print(make_plan(config, {}, 3)),
              print(plan_in(schedule_named("interleaved"), copied(schedule_named("interleaved"), 2, 2, 8, 2))));
    EXPECT_EQ(print(make_plan(config_of("2", "schedule: gpipe, replicas: 2, micro_batches: 5"), {}, 3)),
              print(plan_of("gpipe", Replicas{2, 2}, 5)));
    EXPECT_EQ(print(make_plan(config_of("2", "schedule: gpipe, replicas: 1, micro_batches: 5"), {}, 3)),
              print(plan_of("gpipe", 2, 5)));
    EXPECT_NE(config.yaml.find("\n  replicas: 2\n"), std::string::npos) << config.yaml;
    EXPECT_EQ(load_config(TemporaryFolder().write("printed.yaml", config.yaml), {}).pipeline.copies, 2);
}

TEST(Copies, OfAConfigAreRefusedAtTheirKeys) {
    const auto said = [](const std::string& stages, const std::string& pipeline, const std::string& cluster = "") {
        return refusal([&] { (void)make_plan(config_of(stages, pipeline, cluster), {}, 3); });
    };
    expect_says(said("4", "schedule: zb-v, replicas: 2", "cluster: {devices: 5}\n"),
                {"cfg.yaml:3:", "'pipeline.replicas' is 2, which does not divide the 5 devices", "a divisor of 5"});
    expect_says(said("4", "schedule: zb-v, micro_batches: 8", "cluster: {devices: 8}\n"),
                {"8 devices for 4 stages", "pipeline.replicas: 4"});
    expect_says(said("4", "schedule: interleaved, replicas: 2, micro_batches: 10"),
                {"cfg.yaml:2:", "replica 0 of 2: 5 micro-batches", "in each replica: take 4 or 6"});
    expect_says(said("4", "schedule: interleaved, replicas: [2, 2, 2, 2]"),
                {"cfg.yaml:2:", "one device per stage", "write one number"});
    expect_says(refusal([] {
                    const TemporaryFolder folder;
                    (void)load_config(folder.write("cfg.yaml",
                                                   "workload: {model: gpt2}\n"
                                                   "cluster: {device: h100-sxm-80, devices: 4}\n"
                                                   "parallel: {pipeline: 2}\n"
                                                   "pipeline: {replicas: 2}\n"),
                                      {});
                }),
                {"cfg.yaml:4:", "the replicas of gpt2 follow from 'cluster.devices' and 'parallel'"});
    expect_says(said("2", "schedule: pipedream, replicas: 2, micro_batches: 3"),
                {"cfg.yaml:2:", "no whole number of updates", "pipeline.micro_batches to 4"});
}

}  // namespace
}  // namespace pw
