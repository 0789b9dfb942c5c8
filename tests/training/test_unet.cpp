// The U-Net: its graph, its training images, and runs whose skip connections pass over stages.
#include "tests/support/layer_of.h"
#include "tests/support/predicted_memory.h"
#include "tests/support/thoroughness.h"
#include "workloads/error.h"
#include "workloads/models/unet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace pw {
namespace {

std::vector<std::string> names_of(const Model& model, const std::vector<int>& layers) {
    std::vector<std::string> names;
    for (const int layer : layers)
        names.push_back(model.layers[static_cast<std::size_t>(layer)].name);
    return names;
}

TEST(UNetModel, HasTheLayersOfTheDrawing) {
    const Model model = build_unet(32, 4, 1, 3);
    std::vector<int> all(num_vertices(model.layers));
    for (std::size_t layer = 0; layer < all.size(); ++layer)
        all[layer] = static_cast<int>(layer);
    EXPECT_EQ(
        names_of(model, all),
        (std::vector<std::string>{"down1.conv1", "down1.bn1", "down1.conv2", "down1.bn2", "down1.pool", "bottom.conv1",
                                  "bottom.bn1", "bottom.conv2", "bottom.bn2", "up1.upsample", "up1.halve", "up1.concat",
                                  "up1.conv1", "up1.bn1", "up1.conv2", "up1.bn2", "classifier", "loss"}));
    Bytes bytes = 0;
    for (const int layer : all)
        bytes += model.layers[static_cast<std::size_t>(layer)].parameters * kFloatBytes;
    const int down = 9 * 3 * 4 + 9 * 4 * 4, bottom = 9 * 4 * 8 + 9 * 8 * 8, up = 9 * 8 * 4 + 9 * 8 * 4 + 9 * 4 * 4;
    const int norms = 2 * (4 + 4 + 8 + 8 + 4 + 4), classifier = 4 * 3;
    EXPECT_EQ(bytes, 4 * (down + bottom + up + norms + classifier));
    EXPECT_EQ(labels_per_sample(model), 32 * 32);
}

TEST(UNetModel, JoinsEveryLevelWithItsSkip) {
    const Model model = build_unet(64, 16, 3, 10);
    for (int level = 1; level <= 3; ++level) {
        const std::string down = fmt::format("down{}", level), up = fmt::format("up{}", level);
        const int size = 64 >> (level - 1), channels = 16 << (level - 1);
        EXPECT_EQ(layer_of(model, up + ".concat").output, (Dims{2 * channels, size, size}));
        EXPECT_EQ(layer_of(model, up + ".bn2").output, (Dims{channels, size, size}));
        EXPECT_EQ(layer_of(model, down + ".pool").output, (Dims{channels, size / 2, size / 2}));
        EXPECT_EQ(names_of(model, inputs_of_layer(model.layers, find_layer(model.layers, up + ".concat"))),
                  (std::vector<std::string>{down + ".bn2", up + ".halve"}));
    }
    EXPECT_EQ(layer_of(model, "bottom.bn2").output, (Dims{128, 8, 8}));
    EXPECT_EQ(layer_of(model, "classifier").output, (Dims{10, 64, 64}));
}

TEST(UNetModel, RefusesWhatItCannotHalve) {
    EXPECT_THROW(build_unet(36, 8, 3, 4), Error);
    EXPECT_THROW(build_unet(0, 8, 1, 4), Error);
    EXPECT_THROW(build_unet(32, 0, 1, 4), Error);
    EXPECT_THROW(build_unet(32, 8, 0, 4), Error);
    EXPECT_THROW(build_unet(32, 8, 1, 0), Error);
    EXPECT_NO_THROW(build_unet(8, 1, 3, 1));
}

struct Shown {
    std::vector<float> image;
    std::vector<int> labels;
};

Shown sample_of(const Dataset& data, int place) {
    Shown sample{std::vector<float>(static_cast<std::size_t>(data.input().elements())),
                 std::vector<int>(static_cast<std::size_t>(data.labels_per_sample()))};
    data.read_at({.place = place}, sample.image);
    data.labels_at({.place = place}, sample.labels);
    return sample;
}

TEST(Segmentation, LabelsEveryPixelAlikeEveryTime) {
    const Dataset data = Dataset::segmentation({3, 16, 16}, 4, 5), again = Dataset::segmentation({3, 16, 16}, 4, 5);
    EXPECT_EQ(data.labels_per_sample(), 256);
    std::set<int> seen;
    for (int place = 0; place < 20; ++place) {
        const Shown sample = sample_of(data, place);
        EXPECT_EQ(sample.labels, sample_of(again, place).labels);
        EXPECT_EQ(sample.image, sample_of(again, place).image);
        seen.insert(sample.labels.begin(), sample.labels.end());
    }
    EXPECT_EQ(seen, (std::set<int>{0, 1, 2, 3}));
    EXPECT_NE(sample_of(data, 0).labels, sample_of(Dataset::segmentation({3, 16, 16}, 4, 6), 0).labels);
}

TEST(Segmentation, EnlargesImagesAndLabelsAlike) {
    const Dataset small = Dataset::segmentation({3, 64, 64}, 4, 5), large = Dataset::segmentation({3, 128, 128}, 4, 5);
    const std::vector<int> stored = sample_of(small, 3).labels, enlarged = sample_of(large, 3).labels;
    for (std::size_t row = 0; row < 128; ++row)
        for (std::size_t column = 0; column < 128; ++column)
            ASSERT_EQ(enlarged[row * 128 + column], stored[row / 2 * 64 + column / 2]);
}

// The mean colours of the classes differ.
TEST(Segmentation, IsSeparableByColour) {
    constexpr int kClasses = 3, kImages = 10, kPixels = 256;
    const Dataset data = Dataset::segmentation({3, 16, 16}, kClasses, 2);
    std::vector<std::vector<double>> mean(kClasses, std::vector<double>(3));
    std::vector<double> count(kClasses);
    const auto visit = [&](auto act) {
        for (int place = 0; place < kImages; ++place) {
            const Shown sample = sample_of(data, place);
            for (std::size_t p = 0; p < kPixels; ++p)
                act(static_cast<std::size_t>(sample.labels[p]),
                    [&](std::size_t c) { return static_cast<double>(sample.image[c * kPixels + p]); });
        }
    };
    visit([&](std::size_t label, auto value) {
        ++count[label];
        for (std::size_t c = 0; c < 3; ++c)
            mean[label][c] += value(c);
    });
    for (std::size_t label = 0; label < kClasses; ++label)
        for (double& value : mean[label])
            value /= count[label];
    int right = 0;
    visit([&](std::size_t label, auto value) {
        const auto distance = [&](std::size_t other) {
            double sum = 0;
            for (std::size_t c = 0; c < 3; ++c)
                sum += std::pow(value(c) - mean[other][c], 2);
            return sum;
        };
        right += distance(label) <= std::min({distance(0), distance(1), distance(2)});
    });
    EXPECT_GT(right, 0.8 * kImages * kPixels);
}

constexpr const char* kUNet = R"(
workload: {model: unet, image_size: 16, classes: 3, base_channels: 16, levels: 2}
pipeline: {schedule: naive, micro_batches: 4, micro_batch_size: 2}
training: {steps: 2, learning_rate: 0.01, seed: 3}
)";

// The tensor of level 1 passes over two stages, or over one; both inputs of a concat may be received tensors.
constexpr const char* kSplits[] = {"[down2.conv1, bottom.conv1, up1.upsample]", "[down1.pool, bottom.bn1, up1.concat]",
                                   "[bottom.conv1, up1.concat]"};
constexpr const char* kSchedules[] = {"gpipe", "1f1b", "zb-h1", "interleaved", "pipedream"};

int stages_of(const std::string& split) { return 2 + static_cast<int>(std::ranges::count(split, ',')); }

// interleaved has two stages per device.
bool fits(const std::string& schedule, const std::string& split) {
    return schedule != "interleaved" || stages_of(split) % 2 == 0;
}

std::vector<std::string> setting(const std::string& schedule, const std::string& split, const std::string& backend) {
    const int devices = schedule == "interleaved" ? stages_of(split) / 2 : stages_of(split);
    return {"pipeline.schedule=" + schedule, "pipeline.split=" + split, "run.backend=" + backend,
            fmt::format("cluster.devices={}", devices)};
}

void expect_oracle(const std::string& schedule, const std::string& split, const std::string& backend,
                   const RunResult& whole) {
    const Execution execution(kUNet, setting(schedule, split, backend));
    const RunResult run = execution.run();
    const std::string what = fmt::format("{} {} {}", backend, schedule, split);
    expect_equal(run, execution.oracle(), what);
    if (schedule != "pipedream")
        expect_equal(run, whole, what);
}

TEST(UNet, SkipsOverStagesEqualTheOracle) {
    const RunResult whole = Execution(kUNet, {"cluster.devices=1"}).run();
    for (const char* split : kSplits)
        for (const char* schedule : kSchedules)
            if (fits(schedule, split))
                expect_oracle(schedule, split, "cpu", whole);
}

// Channels that fill whole blocks, that do not, and that do only after a concat. oneDNN has no fast kernels for some of
// them: it takes 8 s.
TEST(UNet, ChannelsThatFillNoBlocksEqualTheOracle) {
    if (!soaks())
        GTEST_SKIP() << "PIPEWRIGHT_SOAK=1 runs it";
    const auto set = with(setting("1f1b", kSplits[0], "cpu"),
                          {"workload.base_channels=8", "workload.image_size=8", "training.steps=1"});
    const Execution execution(kUNet, set);
    expect_equal(execution.run(), execution.oracle(), "8 channels");
    expect_predicted_memory(execution, "8 channels", measured(execution, 2));
}

TEST(UNet, SkipsOverStagesEqualTheOracleInPlainLoops) {
    for (const char* schedule : kSchedules) {
        const auto set =
            with(setting(schedule, kSplits[0], "reference"), {"workload.base_channels=8", "workload.image_size=8"});
        const Execution execution(kUNet, set);
        expect_equal(execution.run(), execution.oracle(), schedule);
    }
}

TEST(UNet, RecomputedStagesGiveTheSameNumbers) {
    for (const char* schedule : {"1f1b", "zb-h1", "pipedream"}) {
        const auto set = setting(schedule, kSplits[0], "cpu");
        const RunResult kept = Execution(kUNet, set).run();
        for (const char* stages : {"all", "[1, 2]"})
            expect_equal(Execution(kUNet, with(set, {std::string("pipeline.recompute=") + stages})).run(), kept,
                         fmt::format("{} {}", schedule, stages));
    }
}

TEST(UNet, CutsItselfIntoStages) {
    const RunResult whole = Execution(kUNet, {"cluster.devices=1"}).run();
    for (const char* split : {"auto", "even"})
        expect_equal(
            Execution(kUNet, {"cluster.devices=3", "pipeline.schedule=1f1b", std::string("pipeline.split=") + split})
                .run(),
            whole, split);
}

TEST(UNet, CountedPeakIsThePredictedOneByteForByte) {
    const Profile profile = measured(kUNet, 2);
    const auto check = [&](const char* schedule, const char* split, const char* receive, const char* recompute) {
        expect_predicted_memory(kUNet, with(setting(schedule, split, "cpu"), {"training.steps=1", receive, recompute}),
                                profile);
    };
    for (const char* split : kSplits)
        for (const char* schedule : kSchedules)
            if (fits(schedule, split))
                check(schedule, split, "transfer.receive=early", "pipeline.recompute=none");
    for (const char* schedule : {"1f1b", "zb-h1"})
        for (const char* receive : {"transfer.receive=early", "transfer.receive=deferred"})
            check(schedule, kSplits[1], receive, "pipeline.recompute=all");
}

double mean_of(std::vector<double>::const_iterator first, int count) {
    double sum = 0;
    for (int k = 0; k < count; ++k)
        sum += first[k];
    return sum / count;
}

TEST(UNet, LearnsTheClassesOfPixels) {
    for (const char* loss : {"cross_entropy", "mse"}) {
        const RunResult run = Execution(kUNet, {"cluster.devices=1", "training.steps=30", "training.learning_rate=0.02",
                                                "pipeline.micro_batch_size=4", std::string("training.loss=") + loss})
                                  .run();
        EXPECT_LT(mean_of(run.losses.end() - 3, 3), 0.6 * mean_of(run.losses.begin(), 3)) << loss;
    }
}

TEST(MeanSquaredError, TrainsAlikeForEverySplit) {
    const std::vector<std::string> mse{"training.loss=mse"};
    const RunResult whole = Execution(kMlp, with(mse, {"cluster.devices=1"})).run();
    EXPECT_NE(whole.losses, Execution(kMlp, {"cluster.devices=1"}).run().losses);
    // The ten outputs are small at first, so that the loss is about that of the label: 1 / 10.
    EXPECT_NEAR(whole.losses.front(), 0.1, 0.02);
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
        expect_equal(Execution(kMlp, with(mse, {"cluster.devices=2", "pipeline.split=even",
                                                std::string("pipeline.schedule=") + schedule}))
                         .run(),
                     whole, schedule);
}

}  // namespace
}  // namespace pw
