// Runs with ZeRO-1: holders that keep the optimizer's states of a part of their stage, and exchange new weights,
// have bit for bit the weights of holders that keep all states.
#include "exec/runnable.h"
#include "exec/training/training.h"
#include "schedules/orders/schedule.h"
#include "tests/support/execution.h"
#include "tests/support/predicted_memory.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace pw {
namespace {

std::vector<std::string> replicated(const std::string& schedule, const std::vector<int>& replicas,
                                    const std::vector<std::string>& more = {}) {
    return with({"pipeline.schedule=" + schedule, "pipeline.split=even", "training.weight_decay=0.01",
                 fmt::format("pipeline.replicas=[{}]", fmt::join(replicas, ", "))},
                more);
}

std::vector<std::string> sharded(const std::vector<std::string>& set) {
    return with(set, {"training.shard_optimizer=true"});
}

// Other tests compare the run with all states on every holder with the oracle and with a single device.
void expect_same_when_sharded(const char* yaml, const std::vector<std::string>& set) {
    const Execution whole(yaml, set), parts(yaml, sharded(set));
    const std::string what = fmt::format("{}", fmt::join(set, " "));
    const RunResult run = parts.run(guarded());
    expect_equal(run, whole.run(), what);
    expect_equal(run, parts.oracle(), what);
}

TEST(ShardedOptimizer, ChangesNoBitInAnySchedule) {
    OneIn some(5);
    for (const Schedule& schedule : schedules())
        if (schedule.takes_replicas() && schedule.trains)
            for (const std::vector<int>& replicas : {std::vector{2}, {3, 1}, {2, 3}})
                for (const char* backend : {"reference", "cpu"})
                    if (some.picks())
                        expect_same_when_sharded(
                            kMlp,
                            replicated(
                                std::string(schedule.name), replicas,
                                {std::string("run.backend=") + backend, "training.steps=2", "pipeline.prediction=none",
                                 fmt::format("pipeline.micro_batches={}", schedule.asynchronous() ? 6 : 5)}));
}

// Of replicas of a pipeline whose devices hold several stages.
TEST(ShardedOptimizer, ChangesNoBitWithSeveralStagesPerDevice) {
    for (const char* schedule : {"interleaved", "zb1p", "zb-v", "bfs"})
        for (const char* yaml : {kMlp, kSmallGpt})
            for (const char* optimizer : {"sgd", "adamw"})
                expect_same_when_sharded(
                    yaml, {std::string("pipeline.schedule=") + schedule, "pipeline.stages=4", "pipeline.split=even",
                           "cluster.devices=4", "pipeline.replicas=2", "pipeline.micro_batches=6", "training.steps=2",
                           std::string("training.optimizer=") + optimizer});
}

TEST(ShardedOptimizer, ChangesNoBitWithOtherOptions) {
    for (const char* more : {"training.clip_norm=0.05", "pipeline.recompute=all", "transfer.receive=deferred",
                             "pipeline.micro_batches=1", "training.momentum=0", "training.optimizer=adamw"})
        for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
            expect_same_when_sharded(kMlp, replicated(schedule, {2, 3}, {"run.backend=cpu", more}));
}

// Copies of a table are added up over stages, for any parts that the holders update.
TEST(ShardedOptimizer, ChangesNoBitOfSharedTables) {
    for (const std::vector<int>& replicas : {std::vector{2}, {2, 2}, {1, 3}, {3, 1, 2}})
        for (const char* more : {"training.steps=3", "training.clip_norm=0.2", "training.optimizer=adamw"})
            expect_same_when_sharded(kSmallGpt, replicated("1f1b", replicas, {more}));
}

TEST(ShardedOptimizer, ChangesNoBitOfBatchNorm) {
    for (const char* more : {"training.batch_norm=per_micro_batch", "training.batch_norm=deferred"}) {
        const std::vector<std::string> set = replicated("1f1b", {2, 2}, {more, "pipeline.micro_batches=4"});
        const RunResult run = of_small_resnet(sharded(set)).run(guarded());
        expect_equal(run, of_small_resnet(set).run(), more);
    }
}

// Every device holds every stage. With clipping it exchanges all of its parts at once.
TEST(ShardedOptimizer, ChangesNoBitOnDevicesOfSeveralStages) {
    const TemporaryFolder folder;
    const std::string plan =
        "pipeline.schedule=" + folder.write("plan.csv", "0F0,1F0,1B0,0B0,0F2,1F2,1B2,0B2\n0F1,1F1,1B1,0B1\n");
    for (const char* clip : {"training.clip_norm=0", "training.clip_norm=0.1"})
        for (const char* yaml : {kMlp, kSmallGpt})
            expect_same_when_sharded(yaml, {plan, "pipeline.micro_batches=3", clip, "pipeline.split=even"});
}

// Every micro-batch is a mini-batch: a plan has many S and U, and versions in several slots.
TEST(ShardedOptimizer, ChangesNoBitWithoutAFlush) {
    for (const char* more : {"pipeline.weights=stash", "pipeline.weights=latest", "pipeline.weights=vertical_sync",
                             "training.optimizer=adamw"})
        expect_same_when_sharded(kMlp, replicated("pipedream", {2, 3}, {"pipeline.micro_batches=6", more}));
}

TEST(ShardedOptimizer, TakesThePredictedMemory) {
    const Profile profile = measured(kMlp, 3);
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
        for (const char* optimizer : {"training.optimizer=sgd", "training.optimizer=adamw"})
            for (const std::vector<int>& replicas : {std::vector{2, 1}, {1, 3}, {4}})
                expect_predicted_memory(kMlp, sharded(replicated(schedule, replicas, {optimizer})), profile);
}

TEST(ShardedOptimizer, KeepsAShareOfTheStates) {
    const auto gradients = static_cast<std::size_t>(MemoryKind::Gradients);
    const auto states = static_cast<std::size_t>(MemoryKind::Optimizer);
    const std::map<std::string, int> blocks{{"sgd", 1}, {"adamw", 2}};
    for (const auto& [optimizer, count] : blocks) {
        const std::vector<std::string> set = replicated("1f1b", {4}, {"training.optimizer=" + optimizer});
        const RunResult whole = Execution(kMlp, set).run(), parts = Execution(kMlp, sharded(set)).run();
        for (std::size_t device = 0; device < 4; ++device) {
            EXPECT_EQ(whole.peak[device][states], count * whole.peak[device][gradients]) << optimizer;
            EXPECT_GE(parts.peak[device][states], whole.peak[device][states] / 4) << optimizer;
            EXPECT_LT(parts.peak[device][states], whole.peak[device][states] / 4 + count * 64) << optimizer;
        }
    }
}

TEST(ShardedOptimizer, DumpsWholeGradients) {
    const TemporaryFolder folder;
    const auto dump = [&](const std::vector<std::string>& set, const std::string& name) {
        RunOptions options;
        options.dump = folder.write(name, "") + ".d";
        (void)run(Execution(kMlp, set).job(), options);
        std::map<std::string, std::string> files;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(options.dump))
            if (entry.is_regular_file()) {
                std::ifstream file(entry.path(), std::ios::binary);
                files[std::filesystem::relative(entry.path(), options.dump).string()] = {
                    std::istreambuf_iterator<char>(file), {}};
            }
        return files;
    };
    const std::vector<std::string> set = replicated("1f1b", {2, 3});
    const auto whole = dump(set, "whole");
    EXPECT_GT(whole.size(), 10u);
    EXPECT_EQ(dump(sharded(set), "parts"), whole);
}

// A task between a sum and its update might wait for another holder.
TEST(ShardedOptimizer, IsRefusedIfUpdatesDoNotFollowTheirSums) {
    Job job = Execution(kMlp, sharded(replicated("gpipe", {2}))).job();
    std::vector<Task>& order = job.plan.order[1];
    const Task sum = order[order.size() - 2], backward = order[order.size() - 3];
    ASSERT_EQ(sum.op, Op::SumGradients);
    order.insert(order.end() - 1, {Op::Recompute, 0, backward.microbatch});
    const std::string said = refusal([&] { check_runnable(job); });
    EXPECT_NE(said.find("on device 1 the update of stage 0 does not follow its sum " + print(sum)), std::string::npos)
        << said;
}

TEST(JoinedParts, TakeEveryValueFromItsHolder) {
    const auto joined = joined_parts({{{"w", {4}, {1, -0.0f, 0, 0}}}, {{"w", {4}, {0, 0, 3, 0}}, {"b", {1}, {2}}}});
    ASSERT_EQ(joined.size(), 2u);
    EXPECT_EQ(joined[1].values, (std::vector<float>{1, 0, 3, 0}));
    EXPECT_TRUE(std::signbit(joined[1].values[1]));
    EXPECT_THROW((void)joined_parts({{{"w", {1}, {1}}}, {{"w", {1}, {2}}}}), Error);
    EXPECT_THROW((void)joined_parts({{{"w", {1}, {1}}}, {{"w", {2}, {1, 1}}}}), Error);
}

}  // namespace
}  // namespace pw
