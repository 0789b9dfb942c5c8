// training.clip_norm: one norm of all gradients, one factor for all of them.
#include "exec/training/npy.h"
#include "schedules/plan/plan_graph.h"
#include "tests/support/execution.h"
#include "tests/support/refusal.h"
#include "tests/support/shapes.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace pw {
namespace {

std::vector<std::string> clipped(std::string_view schedule, const std::vector<std::string>& more = {}) {
    return with({"pipeline.schedule=" + std::string(schedule), "cluster.devices=2", "pipeline.split=even",
                 "training.clip_norm=0.5"},
                more);
}

TEST(Clipping, EqualsItsOracleInEverySchedule) {
    OneIn some(2);
    for (const Schedule& schedule : schedules())
        for (const char* backend : {"reference", "cpu", "emulated"})
            if (!schedule.asynchronous() && some.picks()) {
                const Execution execution(kMlp, clipped(schedule.name, {std::string("run.backend=") + backend}));
                expect_equal(execution.run(), execution.oracle(), fmt::format("{} {}", schedule.name, backend));
            }
}

TEST(Clipping, EqualsItsOracleWithReplicas) {
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
        for (const char* replicas : {"[2]", "[2, 1]", "[1, 3]"})
            for (const char* backend : {"reference", "emulated"}) {
                const Execution execution(kMlp, {std::string("pipeline.schedule=") + schedule, "training.clip_norm=0.5",
                                                 "pipeline.split=even", std::string("pipeline.replicas=") + replicas,
                                                 std::string("run.backend=") + backend});
                expect_equal(execution.run(), execution.oracle(), fmt::format("{} {} {}", schedule, replicas, backend));
            }
}

TEST(Clipping, AboveTheNormChangesNothing) {
    for (const char* schedule : {"1f1b", "zb-v"})
        for (const char* backend : {"reference", "cpu"}) {
            const std::vector<std::string> on{std::string("run.backend=") + backend, "training.clip_norm=1e6"};
            const RunResult wide = Execution(kMlp, clipped(schedule, on)).run();
            expect_equal(wide, Execution(kMlp, clipped(schedule, with(on, {"training.clip_norm=0"}))).run(), schedule);
        }
}

TEST(Clipping, ReportsTheUnclippedNorm) {
    const RunResult clip = Execution(kMlp, clipped("1f1b")).run();
    const RunResult plain = Execution(kMlp, clipped("1f1b", {"training.clip_norm=0"})).run();
    EXPECT_EQ(clip.gradient_norms.front(), plain.gradient_norms.front());
    EXPECT_GT(plain.gradient_norms.front(), 0.5);
    EXPECT_NE(clip.weights_hash, plain.weights_hash);
}

// torch.nn.utils.clip_grad_norm_, then a step without momentum.
TEST(Clipping, TakesTheStepOfTheFormula) {
    constexpr double kClip = 0.5, kRate = 0.1;
    const TemporaryFolder folder;
    RunOptions options;
    options.dump = (folder.path() / "dump").string();
    const RunResult result =
        run(Execution(kMlp, clipped("1f1b", {"training.steps=1", "training.momentum=0", "training.learning_rate=0.1"}))
                .job(),
            options);
    std::map<std::string, std::vector<float>> gradients;
    double squares = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "dump" / "gradients"))
        for (const float value : gradients[entry.path().filename().string()] = read_npy(entry.path().string()))
            squares += static_cast<double>(value) * static_cast<double>(value);
    const double norm = std::sqrt(squares);
    EXPECT_NEAR(result.gradient_norms.front(), norm, 1e-9 * norm);
    const double factor = kClip / (norm + 1e-6);
    ASSERT_LT(factor, 1);
    ASSERT_EQ(gradients.size(), 6u);
    for (const auto& [name, gradient] : gradients) {
        const std::vector<float> before = read_npy((folder.path() / "dump" / "initial" / name).string());
        const std::vector<float> after = read_npy((folder.path() / "dump" / "updated" / name).string());
        for (std::size_t k = 0; k < gradient.size(); ++k)
            EXPECT_NEAR(after[k], static_cast<double>(before[k]) - kRate * factor * static_cast<double>(gradient[k]),
                        1e-6 * (1 + std::abs(static_cast<double>(before[k]))));
    }
}

Plan plan_with_norm(const Schedule& schedule, Shape shape, const PlanOptions& options = {}) {
    shape.global_norm = true;
    return plan_in(schedule, std::move(shape), options);
}

TEST(Clipping, UpdatesWhenAllStagesHaveTheirGradients) {
    for (const Schedule& schedule : schedules()) {
        if (schedule.asynchronous() || schedule.name == "forward-only")
            continue;
        const Plan plan = plan_with_norm(schedule, shape_taken(schedule, 3, 5));
        const PlanGraph graph(plan);
        for (int node = 0; node < graph.size(); ++node) {
            if (graph.task(node).op != Op::Update)
                continue;
            std::map<int, int> gradients;  // stage -> number of gradients
            for (const int input : graph.inputs(node)) {
                const Op op = graph.task(input).op;
                gradients[graph.task(input).stage] += op == Op::Backward || op == Op::BackwardWeight;
            }
            for (int stage = 0; stage < plan.shape.stages; ++stage)
                EXPECT_EQ(gradients[stage], plan.shape.microbatches) << schedule.name << " " << print(graph.task(node));
        }
        for (const std::vector<Task>& order : plan.order) {
            const auto first = std::ranges::find(order, Op::Update, &Task::op);
            EXPECT_TRUE(std::none_of(first, order.end(), [](const Task& task) { return is_compute(task.op); }));
        }
    }
}

// make_plan() proves it.
TEST(Clipping, NeverDeadlocks) {
    for (const Schedule& schedule : schedules())
        if (!schedule.asynchronous())
            for (const auto communicator : {Communicator::Edge, Communicator::Direction, Communicator::One})
                for (const auto receive : {TransferMode::Receive::Early, TransferMode::Receive::Deferred}) {
                    PlanOptions options;
                    options.transfers = {communicator, receive, TransferMode::Protocol::Rendezvous, true};
                    EXPECT_NO_THROW(plan_with_norm(schedule, shape_taken(schedule, 3, 4), options)) << schedule.name;
                }
}

TEST(Clipping, IsRefusedWithoutAFlush) {
    for (const char* schedule : {"pipedream", "pipedream-2bw"})
        expect_says(refusal([&] { (void)Execution(kMlp, clipped(schedule)).job(); }),
                    {"training.clip_norm=0.5", schedule, "never flushes", "leave training.clip_norm out"});
}

}  // namespace
}  // namespace pw
