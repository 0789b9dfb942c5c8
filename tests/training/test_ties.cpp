// Layers that share a parameter, in one stage or in two: one gradient, one step, copies that stay equal.
#include "schedules/plan/gradient_sums.h"
#include "schedules/plan/plan_graph.h"
#include "schedules/plan/sum_groups.h"
#include "sim/simulate.h"
#include "tests/support/execution.h"
#include "tests/support/refusal.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"
#include "workloads/stages/ties.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace pw {
namespace {

// The values of a grey image, from below zero to three, as tokens; the last layer but one shares their table.
Model tied(bool shares = true) {
    constexpr int kTokens = 6, kWidth = 8, kVocabulary = 4, kClasses = 5;
    const Dims tokens{1, kTokens, 1}, rows{1, kTokens, kWidth}, scores{1, kTokens, kVocabulary};
    Model model{"tied", tokens, kClasses, {}};
    LayerGraph& graph = model.layers;
    int last = add_layer(graph, {.name = "floor", .kind = LayerKind::Relu, .input = tokens, .output = tokens}, {});
    last = add_layer(
        graph,
        {.name = "wte", .kind = LayerKind::Embedding, .input = tokens, .output = rows, .vocabulary = kVocabulary},
        {last});
    last = add_layer(graph, {.name = "mix", .kind = LayerKind::RowLinear, .input = rows, .output = rows}, {last});
    last = add_layer(graph, {.name = "relu", .kind = LayerKind::Relu, .input = rows, .output = rows}, {last});
    last = add_layer(graph,
                     {.name = "head",
                      .kind = LayerKind::RowLinear,
                      .input = rows,
                      .output = scores,
                      .bias = false,
                      .tied_to = shares ? "wte" : ""},
                     {last});
    last = add_layer(graph, {.name = "fc", .kind = LayerKind::Linear, .input = scores, .output = {kClasses}}, {last});
    add_layer(graph, {.name = "loss", .kind = LayerKind::CrossEntropy, .input = {kClasses}, .output = {1}}, {last});
    return model;
}

Plan tied_plan(const Schedule& schedule, Shape shape, std::vector<Edge> ties, const PlanOptions& options = {}) {
    shape.ties = std::move(ties);
    return plan_in(schedule, std::move(shape), options);
}

TEST(Ties, AreFoundInTheModelAndBetweenStages) {
    const Model model = tied();
    const std::vector<Tie> ties = ties_of(model.layers);
    ASSERT_EQ(ties.size(), 1u);
    const Layer &table = model.layers[ties[0].table], &reader = model.layers[ties[0].reader];
    EXPECT_EQ(table.name, "wte");
    EXPECT_EQ(reader.name, "head");
    EXPECT_TRUE(ties_of(model.layers, split_even(model.layers, 1)).empty());
    const std::vector<StageTie> between = ties_of(model.layers, split_even(model.layers, 3));
    EXPECT_EQ(between, (std::vector<StageTie>{{0, 2, 4 * 8 * 4}}));
    EXPECT_TRUE(ties_of(tied(false).layers).empty());
}

TEST(Ties, PutStagesIntoOneGroup) {
    Shape shape;
    shape.devices = shape.stages = 6;
    shape.ties = {{0, 5}, {1, 3}, {3, 4}};
    const std::vector<SumGroup> groups = sum_groups(shape);
    ASSERT_EQ(groups.size(), 3u);
    EXPECT_EQ(groups[0].stages, (std::vector<int>{0, 5}));
    EXPECT_EQ(groups[1].stages, (std::vector<int>{1, 3, 4}));
    EXPECT_EQ(groups[2].stages, (std::vector<int>{2}));
    EXPECT_TRUE(needs_sum(shape, 4));
    EXPECT_FALSE(needs_sum(shape, 2));
}

TEST(Ties, AreSummedAfterAllBackwardsOfTheDevice) {
    const Plan plan = tied_plan(schedule_named("1f1b"), shape_of(schedule_named("1f1b"), 3, 2), {{0, 2}});
    EXPECT_EQ(row_of(plan, 0), "0F0 0F1 0B0 0B1 0S1 0U1");
    EXPECT_EQ(row_of(plan, 1), "1F0 1F1 1B0 1B1 1U1");
    EXPECT_EQ(row_of(plan, 2), "2F0 2B0 2F1 2B1 2S1 2U1");
    const Plan looped = tied_plan(schedule_named("bfs"), shape_of(schedule_named("bfs"), 2, 2), {{0, 3}, {1, 2}});
    EXPECT_EQ(row_of(looped, 1), "1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0 3S1 1S1 1U1 3U1");
}

TEST(Ties, WaitForTheGradientsOfBothStages) {
    for (const Schedule& schedule : schedules()) {
        if (schedule.asynchronous() || schedule.name == "forward-only")
            continue;
        const Shape shape = shape_taken(schedule, 3, 4);
        const Plan plan = tied_plan(schedule, shape, {{0, shape.stages - 1}});
        const PlanGraph graph(plan);
        for (int node = 0; node < graph.size(); ++node) {
            const Task& sum = graph.task(node);
            if (sum.op != Op::SumGradients || (sum.stage != 0 && sum.stage != shape.stages - 1))
                continue;
            std::set<Task> gradients;
            for (const int input : graph.inputs(node))
                if (const Task& task = graph.task(input); task.op == Op::Backward || task.op == Op::BackwardWeight)
                    if (task.stage == 0 || task.stage == shape.stages - 1)
                        gradients.insert(task);
            EXPECT_EQ(std::ssize(gradients), 2 * shape.microbatches) << schedule.name << " " << print(sum);
        }
    }
}

// make_plan() proves it.
TEST(Ties, NeverDeadlock) {
    for (const auto communicator : {Communicator::Edge, Communicator::Direction, Communicator::One})
        for (const auto receive : {TransferMode::Receive::Early, TransferMode::Receive::Deferred}) {
            PlanOptions options;
            options.transfers = {communicator, receive, TransferMode::Protocol::Rendezvous, true};
            for (const Schedule& schedule : schedules()) {
                if (schedule.asynchronous())
                    continue;
                const Shape shape = shape_taken(schedule, 3, 4);
                EXPECT_NO_THROW(tied_plan(schedule, shape, {{0, shape.stages - 1}}, options)) << schedule.name;
                EXPECT_NO_THROW(tied_plan(schedule, shape, {{0, 1}, {1, 2}}, options)) << schedule.name;
                if (!schedule.takes_replicas())
                    continue;
                for (const Replicas& replicas : {Replicas{2, 1}, Replicas{1, 3}, Replicas{2, 1, 2}}) {
                    const int last = static_cast<int>(replicas.size()) - 1;
                    EXPECT_NO_THROW(tied_plan(schedule, shape_of(replicas, 3), {{0, last}}, options)) << schedule.name;
                }
            }
        }
}

TEST(Ties, AreRefusedWithoutAFlush) {
    for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
        Shape shape = shape_of(schedule_named(schedule), 2, 4);
        shape.per_update = 2;
        expect_says(refusal([&] {
                        tied_plan(schedule_named(schedule), shape, {{0, 1}});
                    }),
                    {schedule, "stages 0 and 1 share parameters"});
    }
}

TEST(Ties, CostTheExchangeOfTheTable) {
    const Plan plan = tied_plan(schedule_named("1f1b"), shape_of(Replicas{2, 1, 1}, 4), {{0, 2}});
    Costs costs = uniform(3, 10, 20, 10);
    ClusterEdit(costs)->sums = {500, 1e9};
    for (StageBytes& bytes : costs.bytes)
        bytes.weights = 4'000'000;
    add_gradient_sums(costs, plan.shape, {{0, 2, 1'000'000}});
    const Ns exchange = ring_sum(3, 1'000'000, costs.cluster->sums);
    EXPECT_EQ(costs.stage[0].sum_gradients, ring_sum(2, 4'000'000, costs.cluster->sums) + exchange);
    EXPECT_EQ(costs.stage[1].sum_gradients, 0);
    EXPECT_EQ(costs.stage[2].sum_gradients, exchange);
    const Trace trace = simulate(plan, costs);
    std::set<Ns> starts;
    for (const TraceEvent& event : trace.events)
        if (event.task.op == Op::SumGradients)
            starts.insert(event.start);
    EXPECT_EQ(starts.size(), 1u);
}

std::vector<std::string> in_parts(std::string_view schedule, const std::vector<std::string>& more = {}) {
    return with({"pipeline.schedule=" + std::string(schedule), "pipeline.split=even", "cluster.devices=2",
                 "pipeline.micro_batches=4", "training.learning_rate=0.1"},
                more);
}

TEST(ExecutedTies, EqualTheirOracleInEverySchedule) {
    OneIn some(2);
    for (const Schedule& schedule : schedules())
        for (const char* backend : {"reference", "cpu", "emulated"})
            if (!schedule.asynchronous() && some.picks()) {
                const Execution execution(kMlp, in_parts(schedule.name, {std::string("run.backend=") + backend}),
                                          tied());
                expect_equal(execution.run(), execution.oracle(), fmt::format("{} {}", schedule.name, backend));
            }
}

// The table is in one stage, or in two stages of one device.
TEST(ExecutedTies, GiveTheNumbersOfOneDevice) {
    const RunResult whole =
        Execution(kMlp, in_parts("naive", {"cluster.devices=1", "pipeline.stages=1"}), tied()).run();
    for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"})
        expect_equal(Execution(kMlp, in_parts(schedule), tied()).run(), whole, schedule);
    for (const char* stages : {"2", "3"})
        expect_equal(
            Execution(kMlp, in_parts("gpipe", {"cluster.devices=1", std::string("pipeline.stages=") + stages}), tied())
                .run(),
            whole, stages);
    EXPECT_NE(Execution(kMlp, in_parts("gpipe"), tied(false)).run().losses.back(), whole.losses.back());
}

TEST(ExecutedTies, InOneStageNeedNoFlush) {
    for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
        const Execution execution(kMlp, in_parts(schedule, {"pipeline.split=[fc]"}), tied());
        expect_equal(execution.run(), execution.oracle(), schedule);
    }
    expect_says(refusal([] { (void)Execution(kMlp, in_parts("pipedream"), tied()).job(); }),
                {"pipeline.split", "share parameters", "keep both layers in one stage"});
}

TEST(ExecutedTies, EqualTheirOracleWithReplicasAndClipping) {
    for (const Replicas& replicas : {Replicas{2}, Replicas{2, 1}, Replicas{1, 3}, Replicas{2, 1, 2}})
        for (const char* backend : {"reference", "emulated"})
            for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
                for (const char* clip : {"0", "0.3"}) {
                    std::vector<std::string> set =
                        in_parts(schedule, {std::string("run.backend=") + backend,
                                            fmt::format("pipeline.replicas=[{}]", fmt::join(replicas, ", ")),
                                            std::string("training.clip_norm=") + clip});
                    std::erase(set, "cluster.devices=2");
                    const Execution execution(kMlp, set, tied());
                    expect_equal(execution.run(), execution.oracle(), fmt::format("{}", fmt::join(set, " ")));
                }
}

// A run fails at its end if the copies of a parameter differ; dumps contain it once.
TEST(ExecutedTies, KeepBothCopiesEqual) {
    for (const int steps : {1, 2, 3}) {
        const Execution execution(kMlp, in_parts("1f1b", {fmt::format("training.steps={}", steps)}), tied());
        const TemporaryFolder folder;
        RunOptions options;
        options.dump = (folder.path() / "dump").string();
        EXPECT_NO_THROW((void)run(execution.job(), options));
        EXPECT_TRUE(std::filesystem::exists(folder.path() / "dump" / "updated" / "wte.weight.npy"));
        EXPECT_FALSE(std::filesystem::exists(folder.path() / "dump" / "updated" / "head.weight.npy"));
    }
}

}  // namespace
}  // namespace pw
