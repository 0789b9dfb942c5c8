// Sums of gradients in buckets, by bucket threads in parallel with the devices' threads: the trained weights do not
// change.
#include "exec/training/bucket_thread.h"
#include "schedules/orders/schedule.h"
#include "schedules/plan/plan_graph.h"
#include "tests/support/execution.h"
#include "tests/support/predicted_memory.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace pw {
namespace {

std::vector<std::string> of_replicas(const std::string& schedule, const std::vector<int>& replicas,
                                     const std::vector<std::string>& more = {}) {
    return with({"pipeline.schedule=" + schedule, "pipeline.split=even",
                 fmt::format("pipeline.replicas=[{}]", fmt::join(replicas, ", "))},
                more);
}

std::vector<std::string> bucketed(const std::vector<std::string>& set, const std::string& bytes = "500 B") {
    return with(set, {"transfer.sum_bucket=" + bytes});
}

// With and without sharding of the optimizer's states.
void expect_same_in_buckets(const char* yaml, const std::vector<std::string>& set, const std::string& bytes = "500 B") {
    const RunResult whole = Execution(yaml, set).run();
    const std::string what = fmt::format("{} {}", bytes, fmt::join(set, " "));
    const std::vector<std::string> buckets = bucketed(set, bytes);
    expect_equal(Execution(yaml, buckets).run(guarded()), whole, what);
    expect_equal(Execution(yaml, with(buckets, {"training.shard_optimizer=true"})).run(guarded()), whole, what);
}

TEST(Buckets, ChangeNoBitInAnySchedule) {
    OneIn some(3);
    for (const Schedule& schedule : schedules())
        if (schedule.takes_replicas() && schedule.trains)
            for (const std::vector<int>& replicas : {std::vector{3}, {2, 3}})
                if (some.picks())
                    expect_same_in_buckets(
                        kMlp, of_replicas(std::string(schedule.name), replicas,
                                          {"run.backend=cpu", "training.steps=2",
                                           fmt::format("pipeline.micro_batches={}", schedule.asynchronous() ? 6 : 5)}));
}

// Of replicas of a pipeline whose devices hold several stages; in those with five micro-batches nothing overlaps.
TEST(Buckets, ChangeNoBitWithSeveralStagesPerDevice) {
    for (const char* schedule : {"interleaved", "zb1p", "zb-v", "bfs"})
        for (const char* yaml : {kMlp, kSmallGpt})
            for (const char* count : {"8", "5"})
                expect_same_in_buckets(yaml, {std::string("pipeline.schedule=") + schedule, "pipeline.stages=4",
                                              "pipeline.split=even", "cluster.devices=4", "pipeline.replicas=2",
                                              "training.steps=2", std::string("pipeline.micro_batches=") + count});
}

// One bucket, two, five, one per line of 64 bytes, and more.
TEST(Buckets, ChangeNoBitForAnySize) {
    for (const char* bytes : {"1 GiB", "50 kB", "20 kB", "64 B", "7 B"})
        expect_same_in_buckets(kMlp, of_replicas("1f1b", {2, 2}, {"training.steps=2"}), bytes);
}

TEST(Buckets, ChangeNoBitWithOtherOptions) {
    OneIn some(3);
    for (const char* more :
         {"training.clip_norm=0.05", "pipeline.recompute=all", "transfer.receive=deferred", "pipeline.micro_batches=1"})
        for (const char* schedule : {"gpipe", "zb-h1"})
            if (some.picks())
                expect_same_in_buckets(kMlp, of_replicas(schedule, {2, 3}, {"run.backend=cpu", more}));
}

// A table that two layers of one stage share is added up after the buckets; a table that two stages share is summed
// in one piece.
TEST(Buckets, ChangeNoBitOfSharedTables) {
    for (const std::vector<int>& replicas : {std::vector{2}, {2, 2}, {1, 2, 1}})
        expect_same_in_buckets(kSmallGpt, of_replicas("1f1b", replicas));
}

TEST(Buckets, ChangeNoBitOfBatchNorm) {
    const std::vector<std::string> set = of_replicas("zb-h1", {2, 2}, {"pipeline.micro_batches=4"});
    expect_equal(of_small_resnet(bucketed(set, "16 KiB")).run(guarded()), of_small_resnet(set).run(), "batch norm");
}

TEST(Buckets, AreNotUsedOnDevicesOfSeveralStages) {
    const TemporaryFolder folder;
    const std::string plan = "pipeline.schedule=" + folder.write("plan.csv", "0F0,1F0,1B0,0B0\n0F1,1F1,1B1,0B1\n");
    expect_same_in_buckets(kMlp, {plan, "pipeline.micro_batches=2", "pipeline.split=even"});
}

TEST(Buckets, TakeThePredictedMemory) {
    const Profile profile = measured(kMlp, 3);
    expect_predicted_memory(kMlp, bucketed(of_replicas("1f1b", {2, 2})), profile);
}

// S begins when the last gradients are ready, and does the rest of the sum.
TEST(Buckets, LeaveOnlyTheRestOfTheSumToS) {
    for (const char* schedule : {"1f1b", "zb-h1"}) {
        const Execution execution(kMlp, bucketed(of_replicas(schedule, {3, 2})));
        const RunResult run = execution.run();
        int sums = 0;
        for (const TraceEvent& sum : run.trace.events)
            for (const TraceEvent& other : run.trace.events)
                if (sum.task.op == Op::SumGradients && other.step == sum.step && other.task.stage == sum.task.stage &&
                    is_backward(other.task.op)) {
                    EXPECT_GE(sum.start, other.end) << print(sum.task) << ' ' << print(other.task);
                    ++sums;
                }
        EXPECT_GT(sums, 0);
    }
}

// The bucket threads neither keep the run from ending nor hide the cause of its failure.
TEST(Buckets, EndWithADeviceThatFails) {
    const Execution execution(kMlp, bucketed(of_replicas("gpipe", {3})));
    for (const Op op : {Op::Forward, Op::Backward, Op::Update}) {
        RunOptions options;
        options.before_task = [&](int device, const Task& task) {
            if (device == 1 && task.op == op)
                fail_with(ExitCode::RunFailed, "on purpose");
        };
        EXPECT_EQ(refusal([&] { (void)execution.run(options); }, ExitCode::RunFailed), "on purpose");
    }
}

TEST(BucketThread, SumsFullBuckets) {
    Bytes summed = 0;  // read only when the sum is done
    BucketThread* bucket_thread = nullptr;
    BucketThread thread(
        "the test", [] {},
        [&](int node) {
            for (const Bytes from : {200, 100, 0}) {
                bucket_thread->wait_until_full(from);
                if (from == 0)
                    bucket_thread->last_is_full();
                summed += node;
            }
        });
    bucket_thread = &thread;
    for (int step = 1; step <= 3; ++step) {
        thread.begin(7);
        thread.fill(150);
        thread.begin(7);  // has already begun
        thread.fill(0);
        thread.wait_for_last();
        thread.wait_until_done();
        EXPECT_EQ(summed, 21 * step);
    }
}

TEST(BucketThread, ReportsItsFailureToTheDevice) {
    BucketThread thread(
        "the test", [] {}, [](int) { fail("no sum"); });
    for (int step = 0; step < 2; ++step) {
        thread.begin(1);
        EXPECT_THROW(thread.wait_for_last(), Error);
        EXPECT_THROW(thread.wait_until_done(), Error);
    }
}

TEST(BucketThread, EndsWhileItWaits) {
    BucketThread* bucket_thread = nullptr;
    BucketThread thread(
        "the test", [] {}, [&](int) { bucket_thread->wait_until_full(0); });
    bucket_thread = &thread;
    thread.begin(1);
    thread.fill(100);
}

}  // namespace
}  // namespace pw
