// Crops, flips and normalisation of images: the pixels of a sample, and which samples are drawn.
#include "job/build.h"
#include "job/config/config.h"
#include "job/load.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace pw {
namespace {

constexpr Dims kTiny{1, 5, 4};

std::vector<float> image_of(const Dataset& data, const Sample& sample) {
    std::vector<float> image(static_cast<std::size_t>(data.input().elements()));
    data.read_at(sample, image);
    return image;
}

// A pixel of the sample's image with a border of zeros.
int padded(const Dataset& data, const Sample& sample, int channel, int row, int column) {
    const Dims stored = data.stored();
    if (row < 0 || row >= stored.height || column < 0 || column >= stored.width)
        return 0;
    const std::int64_t at =
        ((std::int64_t{sample.place} * stored.channels + channel) * stored.height + row) * stored.width + column;
    return data.pixels()[static_cast<std::size_t>(at)];
}

// A plane of the crop, flipped if the sample is.
std::vector<int> shown(const Dataset& data, const Sample& sample, int channel) {
    std::vector<int> pixels;
    for (int row = 0; row < data.stored().height; ++row) {
        std::vector<int> line;
        for (int column = 0; column < data.stored().width; ++column)
            line.push_back(padded(data, sample, channel, sample.row + row, sample.column + column));
        if (sample.flip)
            std::reverse(line.begin(), line.end());
        pixels.insert(pixels.end(), line.begin(), line.end());
    }
    return pixels;
}

TEST(Augmentation, EveryCropAndFlipOfATinyImage) {
    const Dataset data = Dataset::synthetic(kTiny, 10, 1);
    const auto [scale, shift] = data.normalisation(0);
    for (std::int16_t row = -7; row <= 7; ++row)
        for (std::int16_t column = -7; column <= 7; ++column)
            for (const bool flip : {false, true}) {
                const Sample sample{.place = 11, .row = row, .column = column, .flip = flip};
                std::vector<float> expected;
                for (const int pixel : shown(data, sample, 0))
                    expected.push_back(static_cast<float>(pixel) * scale + shift);
                ASSERT_EQ(image_of(data, sample), expected) << row << " " << column << " " << flip;
            }
}

// A pixel outside the image is black before normalisation.
TEST(Augmentation, BordersAreBlack) {
    Dataset data = Dataset::synthetic(kTiny, 10, 1);
    data.change({.mean = {0.25}, .deviation = {0.5}});
    for (const float value : image_of(data, {.row = 5}))
        EXPECT_EQ(value, -0.5F);
}

// The crop has the stored size and is resized like a whole image.
TEST(Augmentation, CropsBeforeItResizes) {
    const Dataset data = Dataset::synthetic({3, 45, 70}, 10, 2);
    ASSERT_EQ(data.stored(), (Dims{3, 32, 32}));
    const Sample sample{.place = 3, .row = -4, .column = 3, .flip = true};
    const std::vector<float> image = image_of(data, sample);
    std::size_t at = 0;
    for (int channel = 0; channel < 3; ++channel) {
        const std::vector<int> plane = shown(data, sample, channel);
        const auto [scale, shift] = data.normalisation(channel);
        const auto along = [](int i, int to) { return std::clamp((i + 0.5) * 32 / to - 0.5, 0.0, 31.0); };
        for (int row = 0; row < 45; ++row)
            for (int column = 0; column < 70; ++column, ++at) {
                const double y = along(row, 45), x = along(column, 70);
                double sum = 0;
                for (int r = 0; r < 32; ++r)
                    for (int c = 0; c < 32; ++c)
                        sum += std::max(0.0, 1 - std::abs(y - r)) * std::max(0.0, 1 - std::abs(x - c)) *
                               plane[static_cast<std::size_t>(r * 32 + c)];
                ASSERT_NEAR(image[at], sum * scale + shift, 1e-5) << channel << " " << row << " " << column;
            }
    }
}

std::vector<int> labels_of(const Dataset& data, const Sample& sample) {
    std::vector<int> labels(static_cast<std::size_t>(data.labels_per_sample()));
    data.labels_at(sample, labels);
    return labels;
}

// Labels of pixels move with them, and the border is background.
TEST(Augmentation, LabelsFollowTheirPixels) {
    const int rows = 9, columns = 12;
    const Dataset data = Dataset::segmentation({1, rows, columns}, 4, 1);
    const std::vector<int> whole = labels_of(data, {.place = 7});
    for (const int row : {-9, -2, 0, 5})
        for (const int column : {-3, 0, 1, 12})
            for (const bool flip : {false, true}) {
                std::vector<int> expected;
                for (int y = row; y < row + rows; ++y)
                    for (int k = 0; k < columns; ++k) {
                        const int x = column + (flip ? columns - 1 - k : k);
                        const bool outside = y < 0 || y >= rows || x < 0 || x >= columns;
                        expected.push_back(outside ? 0 : whole[static_cast<std::size_t>(y * columns + x)]);
                    }
                const Sample sample{7, static_cast<std::int16_t>(row), static_cast<std::int16_t>(column), flip};
                ASSERT_EQ(labels_of(data, sample), expected) << row << " " << column << " " << flip;
            }
}

TEST(Augmentation, TheLabelOfAnImageStays) {
    const Dataset data = Dataset::synthetic(kTiny, 10, 1);
    for (const int place : {0, 7, 19})
        EXPECT_EQ(labels_of(data, {.place = place, .row = 5, .column = -3, .flip = true}),
                  std::vector<int>{place % 10});
}

TEST(Normalisation, TakesTheGivenNumbersPerChannel) {
    const double mean[] = {0.4465, 0.4822, 0.4914}, deviation[] = {0.2010, 0.1994, 0.2023};
    Dataset data = Dataset::synthetic({3, 32, 32}, 10, 1);
    data.change({.mean = {mean[0], mean[1], mean[2]}, .deviation = {deviation[0], deviation[1], deviation[2]}});
    const std::vector<float> image = image_of(data, {.place = 5});
    for (std::size_t k = 0; k < image.size(); ++k) {
        const double value = data.pixels()[5 * image.size() + k] / 255.0;
        ASSERT_NEAR(image[k], (value - mean[k / 1024]) / deviation[k / 1024], 1e-5) << k;
    }
}

TEST(Draws, WithoutChangesAreWholeImages) {
    Dataset data = Dataset::synthetic(kTiny, 10, 1);
    data.change({});
    for (std::int64_t index : {0, 1, 2047, 2048, 1'000'000}) {
        const Sample sample = data.sample(index);
        EXPECT_EQ(sample.place, data.place(index));
        EXPECT_EQ(sample.row, 0);
        EXPECT_EQ(sample.column, 0);
        EXPECT_FALSE(sample.flip);
    }
}

std::tuple<int, int, int, bool> parts(const Sample& sample) {
    return {sample.place, sample.row, sample.column, sample.flip};
}

ImageChanges crops(int padding, bool flip) {
    ImageChanges changes;
    changes.crop_padding = padding;
    changes.flip = flip;
    return changes;
}

TEST(Draws, DependOnlyOnTheSeedAndTheNumber) {
    const ImageChanges changes = crops(4, true);
    Dataset data = Dataset::synthetic(kTiny, 10, 1), same = data, other = Dataset::synthetic(kTiny, 10, 2);
    for (Dataset* each : {&data, &same, &other})
        each->change(changes);
    int differ = 0;
    for (std::int64_t index = 3000; index-- > 0;) {
        EXPECT_EQ(parts(same.sample(index)), parts(data.sample(index)));
        EXPECT_EQ(data.sample(index).place, data.place(index));
        differ += data.sample(index).row != other.sample(index).row;
    }
    EXPECT_GT(differ, 2000);
    // the same on every machine
    EXPECT_EQ(parts(data.sample(0)), (std::tuple{1272, -4, 4, true}));
    EXPECT_EQ(parts(data.sample(123'456'789)), (std::tuple{37, 0, -3, true}));
}

// Most images of the first epoch look different in the second.
TEST(Draws, DifferBetweenEpochs) {
    Dataset data = Dataset::synthetic(kTiny, 10, 1);
    data.change(crops(4, true));
    std::map<int, Sample> first;
    for (int index = 0; index < data.samples(); ++index)
        first[data.place(index)] = data.sample(index);
    ASSERT_EQ(std::ssize(first), data.samples());
    int same = 0;
    for (int index = 0; index < data.samples(); ++index) {
        const Sample again = data.sample(data.samples() + index);
        same += parts(first.at(again.place)) == parts(again);
    }
    EXPECT_NEAR(same, data.samples() / 162.0, 12);  // 9 x 9 crops, flipped or not
}

// All crops and both sides are equally likely, each independent of the others.
TEST(Draws, AreEven) {
    Dataset data = Dataset::synthetic(kTiny, 10, 3);
    data.change(crops(4, true));
    std::map<std::tuple<int, int, bool>, int> seen;
    const int draws = 81 * 2 * 500;
    for (int index = 0; index < draws; ++index) {
        const Sample sample = data.sample(index);
        ASSERT_LE(std::abs(sample.row), 4);
        ASSERT_LE(std::abs(sample.column), 4);
        ++seen[{sample.row, sample.column, sample.flip}];
    }
    ASSERT_EQ(seen.size(), 162U);
    double chi_squared = 0;
    for (const auto& [choice, count] : seen)
        chi_squared += (count - 500) * (count - 500) / 500.0;
    EXPECT_LT(chi_squared, 161 + 4 * std::sqrt(2 * 161.0));
}

// The largest border that the config accepts.
TEST(Draws, ReachTheWholeBorder) {
    Dataset data = Dataset::synthetic(kTiny, 10, 1);
    data.change(crops(4096, false));
    int least = 0, most = 0;
    for (int index = 0; index < 100'000; ++index) {
        least = std::min<int>(least, data.sample(index).column);
        most = std::max<int>(most, data.sample(index).row);
        ASSERT_FALSE(data.sample(index).flip);
    }
    EXPECT_LT(least, -4090);
    EXPECT_GE(least, -4096);
    EXPECT_GT(most, 4090);
    EXPECT_LE(most, 4096);
}

Dataset open(const std::string& text) {
    const TemporaryFolder folder;
    const Config config = load_config(folder.write("cfg.yaml", text), {});
    return open_dataset(config, build_model(config));
}

TEST(Configured, ChangesReachTheDataSet) {
    const Dataset data =
        open("workload: {model: mlp, augment: {crop_padding: 3, flip: true}, normalise: {mean: [0.5], std: [0.25]}}\n");
    int moved = 0, flipped = 0;
    for (int index = 0; index < 100; ++index) {
        moved += data.sample(index).row != 0 || data.sample(index).column != 0;
        flipped += data.sample(index).flip;
    }
    EXPECT_GT(moved, 80);
    EXPECT_GT(flipped, 25);
    EXPECT_NEAR(data.normalisation(0).shift, -2, 1e-6);
}

TEST(Configured, CountsOfMeansMustFitTheChannels) {
    for (const char* workload : {"mlp, normalise: {mean: [0.4, 0.5, 0.6], std: [0.2, 0.2, 0.2]}",
                                 "resnet50, normalise: {mean: [0.5], std: [0.2]}"}) {
        const std::string message = refusal([&] { open(fmt::format("workload: {{model: {}}}\n", workload)); });
        expect_says(message, {"cfg.yaml:1:", "but images have", "one of each per channel"});
    }
    EXPECT_NO_THROW(open("workload: {model: resnet50, normalise: {mean: [0.4, 0.5, 0.6], std: [0.2, 0.2, 0.2]}}\n"));
}

TEST(Configured, SequencesAreNotChanged) {
    const TemporaryFolder folder;
    const std::string path = folder.write("cfg.yaml", "workload: {model: gpt, augment: {flip: true}}\n");
    expect_says(refusal([&] { load_config(path, {}); }), {"'workload.augment' is not for model: gpt"});
}

}  // namespace
}  // namespace pw
