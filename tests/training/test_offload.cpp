// Runs whose saved tensors go to the memory of the host and come back: the numbers of runs that keep them, and the
// predicted memory.
#include "tests/support/dice.h"
#include "tests/support/predicted_memory.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
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
    OneIn some(2);
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

TEST(OffloadedLayers, MustBeLayersOfTheModel) {
    expect_says(refusal([] {
                    Execution(kMlp, {"pipeline.offload=all", kHostLink, "pipeline.offload_layers=[fc9]"});
                }),
                {"pipeline.offload_layers", "no layer is called 'fc9'"});
}

}  // namespace
}  // namespace pw
