// Runs whose saved tensors and optimizer states go to the memory of the host and come back: the numbers of runs that
// keep them, and the predicted memory.
#include "exec/checkpoint/checkpoint_folder.h"
#include "tests/support/dice.h"
#include "tests/support/predicted_memory.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thoroughness.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw {
namespace {

constexpr const char* kHostLink = "cluster.host_link={bandwidth: 10 GB/s}";

std::vector<std::string> offloading(const std::string& layers, int ahead, bool both_ways) {
    std::vector<std::string> set{"pipeline.offload=all", kHostLink, fmt::format("pipeline.offload_ahead={}", ahead)};
    if (!layers.empty())
        set.push_back("pipeline.offload_layers=" + layers);
    if (both_ways)
        set.emplace_back("transfer.copies=both ways");
    return set;
}

TEST(OffloadedLayers, OfAnMlpGiveTheSameNumbersAndThePredictedMemory) {
    Random random(12);
    OneIn some(4);
    for (const char* backend : {"reference", "cpu", "emulated"})
        for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved", "pipedream"}) {
            if (!some.picks())
                continue;
            const std::vector<std::string> set{
                std::string("run.backend=") + backend,        "cluster.devices=2",   "pipeline.micro_batches=8",
                std::string("pipeline.schedule=") + schedule, "pipeline.split=even", "training.steps=2"};
            const Execution plain(kMlp, set);
            const bool computes = std::string_view(backend) != "emulated";
            const Profile profile = computes ? measured(plain, 3) : plain.job().profile;
            const RunResult kept = plain.run();
            for (const char* layers : {"", "['relu*']"}) {
                const std::vector<std::string> own =
                    with(set, offloading(layers, pick(random, 1, 2), pick(random, 0, 1) == 1));
                const Execution execution(kMlp, own);
                expect_equal(execution.run(guarded()), kept, fmt::format("{}", fmt::join(own, " ")));
                expect_predicted_memory(kMlp, own, profile);
            }
        }
}

TEST(OffloadedLayers, OfAResNetGiveTheSameNumbersAndThePredictedMemory) {
    const std::vector<std::string> set{"cluster.devices=2", "training.steps=1", "pipeline.micro_batches=6",
                                       "pipeline.split=[layer2.1.conv2]", "pipeline.schedule=gpipe"};
    const Execution plain = of_small_resnet(set);
    const Profile profile = measured(plain, 2);
    const RunResult kept = plain.run();
    for (const char* layers : {"", "['*bn*', maxpool]", "[layer2]"}) {
        const Execution execution = of_small_resnet(with(set, offloading(layers, 1, false)));
        expect_equal(execution.run(guarded()), kept, layers);
        expect_predicted_memory(execution, layers, profile);
    }
}

// Layers that are not offloaded are made again.
TEST(OffloadedLayers, OfAGptWorkWithRecomputation) {
    const std::vector<std::string> set{"cluster.devices=2", "training.steps=1", "pipeline.schedule=gpipe",
                                       "pipeline.micro_batches=6", "pipeline.split=even"};
    const Execution plain(kSmallGpt, set);
    const Profile profile = measured(plain, 2);
    const RunResult kept = plain.run();
    for (const char* layers : {"", "[h.0, h.2]", "['*dropout']"}) {
        std::vector<std::string> own = with(set, offloading(layers, 1, true));
        own.emplace_back("pipeline.recompute=all");
        expect_equal(Execution(kSmallGpt, own).run(guarded()), kept, layers);
        expect_predicted_memory(kSmallGpt, own, profile);
    }
}

TEST(OffloadedLayers, TakeLessMemory) {
    const std::vector<std::string> set{"cluster.devices=2", "training.steps=1", "pipeline.micro_batches=8",
                                       "pipeline.schedule=gpipe", "pipeline.split=even"};
    const auto peak = [&](const std::vector<std::string>& more) {
        return total(Execution(kMlp, with(set, more)).run().peak[0]);
    };
    const Bytes none = peak({}), relu = peak(offloading("['relu*']", 1, false)), all = peak(offloading("", 1, false));
    EXPECT_LT(all, relu);
    EXPECT_LT(relu, none);
}

std::vector<std::string> storing(int ahead, const std::vector<std::string>& more = {}) {
    return with({"pipeline.offload_states=all", kHostLink, fmt::format("pipeline.offload_states_ahead={}", ahead)},
                more);
}

bool stores(const Job& job) {
    return std::ranges::any_of(job.plan.order, [](const std::vector<Task>& order) {
        return std::ranges::find(order, Op::Store, &Task::op) != order.end();
    });
}

// The states leave in every step, and come back with the values of the step before.
TEST(OffloadedStates, OfAnMlpGiveTheSameNumbersAndThePredictedMemory) {
    Random random(14);
    OneIn some(5);
    for (const char* backend : {"reference", "cpu", "emulated"})
        for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved"})
            for (const char* optimizer : {"sgd", "adamw"}) {
                if (!some.picks())
                    continue;
                const std::vector<std::string> set{
                    std::string("run.backend=") + backend,         "cluster.devices=2",   "pipeline.micro_batches=8",
                    std::string("pipeline.schedule=") + schedule,  "pipeline.split=even", "training.steps=4",
                    std::string("training.optimizer=") + optimizer};
                const Execution plain(kMlp, set);
                const bool computes = std::string_view(backend) != "emulated";
                const Profile profile = computes ? measured(plain, 3) : plain.job().profile;
                std::vector<std::string> more;
                if (pick(random, 0, 1) == 1)
                    more = offloading("", 1, pick(random, 0, 1) == 1);
                const std::vector<std::string> own = with(set, storing(pick(random, 1, 3), more));
                const Execution execution(kMlp, own);
                EXPECT_TRUE(stores(execution.job()));
                expect_equal(execution.run(guarded()), plain.run(), fmt::format("{}", fmt::join(own, " ")));
                expect_predicted_memory(kMlp, own, profile);
            }
}

// Holders of a stage, sums with and without ZeRO, a norm of all gradients, ties.
TEST(OffloadedStates, OfHoldersGiveTheSameNumbersAndThePredictedMemory) {
    for (const char* yaml : {kMlp, kSmallGpt}) {
        const Profile profile = measured(Execution(yaml, {"cluster.devices=1"}), yaml == kMlp ? 3 : 2);
        for (const char* more : {"training.zero=0", "training.zero=1", "training.clip_norm=0.05"})
            for (const int ahead : {1, 2}) {
                const std::vector<std::string> set{"pipeline.schedule=1f1b",
                                                   "pipeline.replicas=[2,2]",
                                                   "pipeline.split=even",
                                                   "pipeline.micro_batches=8",
                                                   "training.steps=3",
                                                   "training.optimizer=adamw",
                                                   more};
                const Execution execution(yaml, with(set, storing(ahead)));
                EXPECT_TRUE(stores(execution.job()));
                const std::string what = fmt::format("{} {}", more, ahead);
                expect_equal(execution.run(guarded()), Execution(yaml, set).run(), what);
                expect_predicted_memory(execution, what, profile);
            }
    }
}

// With ZeRO-1, a copy may come between the sum of a stage and its update.
TEST(OffloadedStates, OfSeveralStagesPerDeviceGiveTheSameNumbers) {
    for (const char* schedule : {"interleaved", "zb-v", "bfs"})
        for (const int ahead : {1, 2}) {
            const std::vector<std::string> set{std::string("pipeline.schedule=") + schedule,
                                               "pipeline.stages=4",
                                               "cluster.devices=4",
                                               "pipeline.replicas=2",
                                               "pipeline.split=even",
                                               "pipeline.micro_batches=8",
                                               "training.steps=3",
                                               "training.zero=1"};
            const Execution execution(kMlp, with(set, storing(ahead)));
            EXPECT_TRUE(stores(execution.job()));
            expect_equal(execution.run(guarded()), Execution(kMlp, set).run(), fmt::format("{} {}", schedule, ahead));
        }
}

// A checkpoint has the states that the run without copies has, and a run resumes with them.
TEST(OffloadedStates, AreInCheckpoints) {
    const auto after = [](int steps, const std::vector<std::string>& set, std::shared_ptr<const FoundCheckpoint> from) {
        const TemporaryFolder folder;
        RunOptions options = guarded();
        options.checkpoints = std::make_shared<CheckpointFolder>(folder.path(), 1, 9);
        options.resumed = std::move(from);
        (void)Execution(kMlp, with(set, {fmt::format("training.steps={}", steps)})).run(options);
        std::vector<std::string> left_out;
        return std::make_shared<const FoundCheckpoint>(find_checkpoint(folder.path(), left_out));
    };
    const std::vector<std::string> kept{"cluster.devices=2", "pipeline.schedule=1f1b", "pipeline.micro_batches=8",
                                        "training.optimizer=adamw", "pipeline.split=even"};
    const std::vector<std::string> stored = with(kept, storing(1));
    const auto whole = after(4, kept, nullptr), resumed = after(2, stored, after(2, stored, nullptr));
    EXPECT_FALSE(whole->checkpoint.states.empty());
    EXPECT_EQ(hash_of(resumed->checkpoint.states), hash_of(whole->checkpoint.states));
    EXPECT_EQ(hash_of(resumed->checkpoint.parameters), hash_of(whole->checkpoint.parameters));
}

TEST(OffloadedStates, TakeLessMemory) {
    const std::vector<std::string> set{"cluster.devices=2",        "training.steps=2",
                                       "pipeline.micro_batches=8", "pipeline.micro_batch_size=64",
                                       "pipeline.schedule=gpipe",  "training.optimizer=adamw"};
    const auto states = static_cast<std::size_t>(MemoryKind::Optimizer);
    const RunResult kept = Execution(kMlp, set).run(), stored = Execution(kMlp, with(set, storing(1))).run();
    EXPECT_GT(kept.peak[0][states], 0);
    EXPECT_EQ(stored.peak[0][states], 0);  // activations of all micro-batches fill it
    EXPECT_LT(total(stored.peak[0]), total(kept.peak[0]));
    EXPECT_LT(stored.arena[0], kept.arena[0]);
}

TEST(OffloadedLayers, MustBeLayersOfTheModel) {
    expect_says(refusal([] {
                    Execution(kMlp, {"pipeline.offload=all", kHostLink, "pipeline.offload_layers=[fc9]"});
                }),
                {"pipeline.offload_layers", "no layer is called 'fc9'"});
}

}  // namespace
}  // namespace pw
