// Tensors that many layers of several stages read: a stage sends back one summed gradient, and a run equals its
// oracle.
#include "tests/support/many_readers.h"
#include "tests/support/predicted_memory.h"
#include "tests/support/thoroughness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace pw {
namespace {

Execution of_readers(const std::vector<std::string>& set) { return {kManyReaders, set, model_of_many_readers()}; }

// The stem's tensor goes to two or three other stages; in the last two splits the stage of `side` comes before stages
// of layers that have higher numbers, or after them.
const std::string kTwo = "[block3]", kThree = "[block3, block5]", kFour = "[block1.add, block3.bn, block5.add]",
                  kSideLast =
                      "[[stem.conv, stem.bn, block1.conv, block1.bn, block1.add, block2.conv, block2.bn, "
                      "block2.add], [block3.conv, block3.bn, block3.add, block4.conv, block4.bn, block4.add, "
                      "block4.again, block5.conv, block5.bn, block5.add, block5.again], [side, block6.conv, "
                      "block6.bn, block6.add, join, pool, fc, loss]]",
                  kSideBetween =
                      "[[stem.conv, stem.bn, block1.conv, block1.bn, block1.add, block2.conv, block2.bn], "
                      "[block2.add, side, block4.conv, block4.bn, block4.add, block4.again, block3.conv, "
                      "block3.bn, block3.add], [block5.conv, block5.bn, block5.add, block5.again, "
                      "block6.conv, block6.bn, block6.add, join, pool, fc, loss]]";

std::vector<std::string> cut(const std::string& split, const std::string& schedule) {
    const bool lists = split.starts_with("[[");
    const int stages = lists ? 3 : 2 + static_cast<int>(std::ranges::count(split, ','));
    return {"pipeline.split=" + (lists ? "{stages: " + split + "}" : split), "pipeline.schedule=" + schedule,
            fmt::format("cluster.devices={}", schedule == "interleaved" ? stages / 2 : stages)};
}

TEST(FanOut, RunsEqualTheirOracles) {
    OneIn some(7);
    for (const std::string& split : {kTwo, kThree, kFour, kSideLast, kSideBetween})
        for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "pipedream"})
            for (const char* backend : {"cpu", "reference", "emulated"}) {
                if (!some.picks())
                    continue;
                const Execution execution =
                    of_readers(with(cut(split, schedule), {std::string("run.backend=") + backend}));
                expect_equal(execution.run(guarded()), execution.oracle(),
                             fmt::format("{} {} {}", backend, schedule, split));
            }
}

TEST(FanOut, RunsOfOtherKindsEqualTheirOracles) {
    using Set = std::vector<std::string>;
    for (const Set& set :
         {with(cut(kFour, "interleaved"), {}), with(cut(kFour, "zb-v"), {"cluster.devices=2"}),
          with(cut(kThree, "1f1b"), {"pipeline.recompute=all"}),
          with(cut(kThree, "zb-h2"), {"transfer.receive=deferred"}),
          with(cut(kTwo, "1f1b"), {"cluster.devices=4", "pipeline.replicas=[2,2]"}),
          with(cut(kThree, "pipedream-2bw"), {"transfer.receive=deferred"}),
          with(cut(kThree, "gpipe"), {"cluster.devices=1", "pipeline.stages=3"}),
          with(cut(kThree, "gpipe"), {"pipeline.mini_batch=7", "pipeline.micro_batches=4"}),
          with(cut(kThree, "1f1b"), {"run.transport=link", "cluster.link={bandwidth: 1 GB/s, latency: 20 us}"})})
        for (const char* rule : {"stage", "layer"}) {
            const Execution execution = of_readers(with(set, {std::string("run.fan_out_gradients=") + rule}));
            expect_equal(execution.run(guarded()), execution.oracle(), fmt::format("{} {}", rule, fmt::join(set, " ")));
        }
}

// A split has one grouping of the sums, in every schedule.
TEST(FanOut, SynchronousSchedulesOfASplitShareAHash) {
    const RunResult run = of_readers(cut(kFour, "naive")).run();
    for (const char* schedule : {"gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"})
        expect_equal(of_readers(cut(kFour, schedule)).run(), run, schedule);
}

// By stage the grouping depends on the split; by layer all splits have the same.
TEST(FanOut, GradientsByLayerShareAHashOverAllSplits) {
    std::set<std::string> by_stage;
    const RunResult whole = of_readers({"cluster.devices=1"}).run();
    for (const std::string& split : {kTwo, kThree, kFour, kSideLast, kSideBetween}) {
        by_stage.insert(of_readers(cut(split, "1f1b")).run().weights_hash);
        const Execution by_layer = of_readers(with(cut(split, "1f1b"), {"run.fan_out_gradients=layer"}));
        const RunResult run = by_layer.run();
        expect_equal(run, whole, split);
        expect_equal(run, by_layer.oracle(), split);
    }
    EXPECT_GT(by_stage.size(), 2u);
}

TEST(FanOut, MemoryIsPredictedByteForByte) {
    const Profile profile = measured(of_readers({"cluster.devices=1"}), 2);
    for (const std::string& split : {kThree, kFour, kSideBetween})
        for (const char* schedule : {"gpipe", "zb-h1", "pipedream"})
            for (const char* receive : {"early", "deferred"})
                for (const char* rule : {"stage", "layer"})
                    expect_predicted_memory(
                        of_readers(
                            with(cut(split, schedule), {std::string("transfer.receive=") + receive, "training.steps=1",
                                                        std::string("run.fan_out_gradients=") + rule})),
                        fmt::format("{} {} {} {}", split, schedule, receive, rule), profile);
}

}  // namespace
}  // namespace pw
