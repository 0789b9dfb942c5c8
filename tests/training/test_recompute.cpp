// Runs that recompute some layers, spare some micro-batches, or recompute early: the numbers of runs that recompute
// nothing, and the predicted memory.
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

std::vector<std::string> recomputing(const std::string& layers, int saved = 0, const std::string& ahead = "0") {
    return {"pipeline.recompute=all", "pipeline.recompute_layers=" + layers,
            fmt::format("pipeline.recompute_saved={}", saved), "pipeline.recompute_ahead=" + ahead};
}

// Draws each layer of the model with probability 1/2.
std::string some_layers(const Model& model, Random& random) {
    std::vector<std::string> names;
    for (std::size_t layer = 0; layer < boost::num_vertices(model.layers); ++layer)
        if (pick(random, 0, 1) == 1)
            names.push_back(model.layers[layer].name);
    if (names.empty())
        names.push_back(model.layers[0].name);
    return fmt::format("[{}]", fmt::join(names, ", "));
}

TEST(RecomputedLayers, OfAnMlpGiveTheSameNumbersAndThePredictedMemory) {
    Random random(7);
    OneIn some(3);
    for (const char* backend : {"reference", "cpu", "emulated"})
        for (const char* schedule : {"1f1b", "zb-h1", "interleaved", "pipedream"}) {
            if (!some.picks())
                continue;
            const std::vector<std::string> set{
                std::string("run.backend=") + backend,        "cluster.devices=2",   "pipeline.micro_batches=6",
                std::string("pipeline.schedule=") + schedule, "pipeline.split=even", "training.steps=2"};
            const Execution plain(kMlp, set);
            const bool computes = std::string_view(backend) != "emulated";
            const Profile profile = computes ? measured(plain, 3) : plain.job().profile;
            const RunResult kept = plain.run();
            for (int round = 0; round < rounds(1) && round < 2; ++round) {
                const std::vector<std::string> own =
                    with(set, recomputing(some_layers(*plain.job().model, random), round,
                                          pick(random, 0, 1) == 0 ? "1" : "auto"));
                const Execution execution(kMlp, own);
                expect_equal(execution.run(guarded()), kept, fmt::format("{}", fmt::join(own, " ")));
                expect_predicted_memory(kMlp, own, profile);
            }
        }
}

// Batch norms with their adds, branches, and tensors that cross a cut.
TEST(RecomputedLayers, OfAResNetGiveTheSameNumbersAndThePredictedMemory) {
    Random random(8);
    for (const char* schedule : {"zb-h1"}) {
        const std::vector<std::string> set{"cluster.devices=2", "training.steps=1", "pipeline.micro_batches=4",
                                           "pipeline.split=[layer2.1.conv2]",
                                           std::string("pipeline.schedule=") + schedule};
        const Execution plain = of_small_resnet(set);
        const Profile profile = measured(plain, 2);
        const RunResult kept = plain.run();
        std::vector<std::string> layers{"['*bn*', maxpool]", "[layer2]"};
        layers.push_back(some_layers(*plain.job().model, random));
        for (const std::string& some : layers) {
            const Execution execution = of_small_resnet(with(set, recomputing(some, 0, "auto")));
            expect_equal(execution.run(guarded()), kept, fmt::format("{} {}", schedule, some));
            expect_predicted_memory(execution, some, profile);
        }
    }
}

// Dropout draws the same numbers again.
TEST(RecomputedLayers, OfAGptGiveTheSameNumbersAndThePredictedMemory) {
    Random random(9);
    const std::vector<std::string> set{"cluster.devices=2", "training.steps=1", "pipeline.schedule=1f1b",
                                       "pipeline.split=even"};
    const Execution plain(kSmallGpt, set);
    const Profile profile = measured(plain, 2);
    const RunResult kept = plain.run();
    std::vector<std::string> layers{"['*.act', '*.ln_1', '*.ln_2']", "[h.0, h.2]", "['*dropout']"};
    for (int round = 0; round < 2; ++round)
        layers.push_back(some_layers(*plain.job().model, random));
    for (const std::string& some : layers) {
        const std::vector<std::string> own = with(set, recomputing(some));
        expect_equal(Execution(kSmallGpt, own).run(guarded()), kept, some);
        expect_predicted_memory(kSmallGpt, own, profile);
    }
}

// What one layer saves less, and what the micro-batches in flight save more.
TEST(RecomputedLayers, TakeMemoryBetweenAllAndNone) {
    const std::vector<std::string> set{"cluster.devices=2", "training.steps=1", "pipeline.micro_batches=8",
                                       "pipeline.schedule=gpipe", "pipeline.split=even"};
    const auto peak = [&](const std::vector<std::string>& more) {
        return total(Execution(kMlp, with(set, more)).run().peak[0]);
    };
    const Bytes none = peak({}), relu = peak(recomputing("['relu*']")), all = peak({"pipeline.recompute=all"});
    EXPECT_LT(all, relu);
    EXPECT_LT(relu, none);
    EXPECT_EQ(peak(recomputing("['*']")), all);
}

TEST(RecomputedLayers, MustBeLayersOfTheModel) {
    expect_says(refusal([] { Execution(kMlp, {"pipeline.recompute_layers=[fc1, conv*]"}); }),
                {"pipeline.recompute_layers", "no layer is called 'conv*'"});
    expect_says(refusal([] { Execution(kMlp, {"pipeline.recompute_layers=[]"}); }), {"recompute_layers' is empty"});
}

}  // namespace
}  // namespace pw
