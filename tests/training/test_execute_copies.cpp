// Runs of replicas of a whole pipeline, whose devices hold several stages: every plan equals its oracle, which first
// adds up the gradients of each holder, and plans that share out the micro-batches in the same way give one result.
#include "schedules/memory/buffers.h"
#include "tests/support/bidirectional.h"
#include "tests/support/execution.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pw {
namespace {

// Each replica has two devices with two stages each, and three micro-batches or more.
std::vector<std::string> copied_twice(const std::string& schedule, const std::vector<std::string>& more = {}) {
    return with({"pipeline.schedule=" + schedule, "pipeline.stages=4", "pipeline.split=even", "cluster.devices=4",
                 "pipeline.replicas=2", "pipeline.micro_batches=6"},
                more);
}

const std::vector<const char*> kSeveralStages = {"interleaved", "bfs", "zb1p", "zb-v", "gpipe", "naive"};

RunResult expect_oracle_of(const Execution& execution, const std::string& what) {
    const RunResult run = execution.run(guarded());
    expect_equal(run, execution.oracle(), what);
    return run;
}

TEST(ExecutedCopies, EqualTheirOracleInEverySchedule) {
    OneIn some(2);
    for (const char* schedule : kSeveralStages)
        for (const char* backend : {"reference", "cpu", "emulated"})
            for (const char* more : {"pipeline.micro_batches=8", "pipeline.micro_batches=5", "pipeline.recompute=all",
                                     "transfer.receive=deferred", "training.clip_norm=0.1", "training.optimizer=adamw",
                                     "pipeline.micro_batch_size=1"})
                if (some.picks()) {
                    const std::vector<std::string> set =
                        copied_twice(schedule, {std::string("run.backend=") + backend, more, "training.steps=2"});
                    expect_oracle_of({kMlp, set}, fmt::format("{}", fmt::join(set, " ")));
                }
}

// The gradient of a stage is that of its first holder, which serves the even micro-batches, plus that of the second:
// the same in replicas of a pipeline with one stage per device, and of each stage.
TEST(ExecutedCopies, GiveTheWeightsOfReplicasWithOneStagePerDevice) {
    for (const char* backend : {"reference", "cpu"}) {
        const std::vector<std::string> on = {std::string("run.backend=") + backend};
        const RunResult listed =
            Execution(kMlp, with(copied_twice("1f1b", on), {"pipeline.stages=2", "pipeline.replicas=[2, 2]"})).run();
        expect_equal(Execution(kMlp, with(copied_twice("1f1b", on), {"pipeline.stages=2"})).run(), listed, "1f1b");
        for (const char* schedule : {"interleaved", "zb1p", "zb-v", "gpipe"})
            expect_equal(Execution(kMlp, copied_twice(schedule, on)).run(), listed, schedule);
    }
}

// The embedding and the last layer share a table and are on different devices, or in zb-v on one.
TEST(ExecutedCopies, OfAGptEqualTheirOracle) {
    for (const char* schedule : {"interleaved", "zb-v"})
        for (const char* backend : {"reference", "cpu"})
            for (const char* clip : {"0", "0.5"})
                expect_oracle_of({kSmallGpt, copied_twice(schedule, {std::string("run.backend=") + backend,
                                                                     std::string("training.clip_norm=") + clip})},
                                 fmt::format("{} {} {}", schedule, backend, clip));
}

TEST(ExecutedCopies, OfAResNetEqualTheirOracle) {
    for (const char* schedule : {"interleaved", "zb-v"})
        expect_oracle_of(of_small_resnet(copied_twice(schedule, {"training.steps=1"})), schedule);
}

// The second replica has no micro-batch and sums and updates like the first.
TEST(ExecutedCopies, WithoutMicroBatchesGiveTheNumbersOfOneDevice) {
    const std::vector<std::string> few = {"pipeline.micro_batches=1"};
    const RunResult whole = Execution(kMlp, with(few, {"cluster.devices=1"})).run();
    for (const char* schedule : {"interleaved", "zb-v", "bfs"})
        expect_equal(Execution(kMlp, copied_twice(schedule, few)).run(), whole, schedule);
}

TEST(ExecutedCopies, OnlyEvaluateWithoutSums) {
    const std::vector<std::string> more = {"pipeline.micro_batches=6"};
    expect_equal(Execution(kMlp, copied_twice("forward-only")).run(),
                 Execution(kMlp, with(more, {"pipeline.schedule=forward-only", "cluster.devices=1"})).run(), "");
}

TEST(ExecutedCopies, CountThePredictedMemory) {
    for (const char* schedule : kSeveralStages) {
        const Execution execution(kMlp, copied_twice(schedule, {"run.backend=emulated", "training.steps=1"}));
        const Job& job = execution.job();
        const auto memory = memory_of(job.plan, buffers_of(job.plan, job.costs, job.versions));
        const RunResult result = execution.run();
        for (std::size_t device = 0; device < memory.size(); ++device)
            EXPECT_EQ(result.peak[device], peak_of(memory[device])) << schedule << " device " << device;
    }
}

// Two pipelines, each in both directions: a stage has four holders.
TEST(ExecutedCopies, InBothDirectionsEqualTheirOracle) {
    const Execution execution(kMlp,
                              {"pipeline.stages=2", "pipeline.split=even", "cluster.devices=4", "pipeline.replicas=2",
                               "pipeline.micro_batches=8"},
                              kBidirectional);
    EXPECT_EQ(execution.job().plan.shape.devices_of(0), (std::vector<int>{0, 1, 2, 3}));
    expect_oracle_of(execution, "both ways");
}

}  // namespace
}  // namespace pw
