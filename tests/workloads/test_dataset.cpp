#include "workloads/data/dataset.h"

#include "tests/support/cifar_files.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <thread>

namespace pw {
namespace {

constexpr double kMean[3] = {0.4914, 0.4822, 0.4465}, kDeviation[3] = {0.2023, 0.1994, 0.2010};

std::vector<float> image_of(const Dataset& data, std::int64_t index) {
    std::vector<float> image(static_cast<std::size_t>(data.input().elements()));
    data.read(index, image);
    return image;
}

// The position of the one sample with this label in the first epoch.
std::int64_t find_label(const Dataset& data, int label) {
    for (int i = 0; i < data.samples(); ++i)
        if (data.label(i) == label)
            return i;
    return -1;
}

TEST(Cifar, DeliversNormalisedPlanes) {
    const TemporaryFolder folder;
    write_cifar_files(folder.path());
    // one sample of label 7: red 255, green 128, blue 0
    write_record(cifar_file(folder.path(), 3), 1234, 0,
                 std::string(1, 7) + std::string(1024, '\xff') + std::string(1024, '\x80') + std::string(1024, '\0'));
    const Dataset data = Dataset::cifar10(folder.path().string(), 32, 1);
    EXPECT_EQ(data.samples(), 50'000);
    EXPECT_EQ(data.classes(), 10);
    EXPECT_EQ(data.input(), (Dims{3, 32, 32}));
    const std::int64_t index = find_label(data, 7);
    ASSERT_GE(index, 0);
    const std::vector<float> image = image_of(data, index);
    const double value[3] = {1, 128 / 255.0, 0};
    for (std::size_t i = 0; i < image.size(); ++i)
        ASSERT_NEAR(image[i], (value[i / 1024] - kMean[i / 1024]) / kDeviation[i / 1024], 1e-5) << i;
}

// align_corners = false: doubling puts the new centres at quarters of the old pixels.
TEST(Cifar, ResizesBilinearly) {
    const TemporaryFolder folder;
    write_cifar_files(folder.path() / "cifar-10-batches-bin");
    const std::filesystem::path file = cifar_file(folder.path() / "cifar-10-batches-bin", 1);
    std::string row(32, '\0');
    row[0] = 40;
    row[1] = 80;
    std::string red;
    for (int i = 0; i < 32; ++i)
        red += row;
    write_record(file, 0, 0, std::string(1, 3) + red);
    const Dataset data = Dataset::cifar10(folder.path().string(), 64, 1);
    const std::vector<float> image = image_of(data, find_label(data, 3));
    const double expected[6] = {40, 50, 70, 60, 20, 0};
    for (std::size_t line : {0u, 31u, 63u})
        for (std::size_t i = 0; i < 6; ++i)
            EXPECT_NEAR(image[line * 64 + i], (expected[i] / 255 - kMean[0]) / kDeviation[0], 1e-5) << line << " " << i;
}

TEST(Resize, KeepsAConstantConstant) {
    const TemporaryFolder folder;
    write_cifar_files(folder.path());
    for (const int size : {1, 7, 33, 224}) {
        const Dataset data = Dataset::cifar10(folder.path().string(), size, 1);
        const std::vector<float> image = image_of(data, 0);
        const std::size_t plane = static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
        for (std::size_t i = 0; i < image.size(); ++i)
            ASSERT_NEAR(image[i], -kMean[i / plane] / kDeviation[i / plane], 1e-5);
    }
}

TEST(Order, EveryEpochShowsEverySampleOnce) {
    // a sample is identified by its label
    for (const int classes : {1, 2, 3, 10, 1000, 2048}) {
        const Dataset data = Dataset::synthetic({1, 4, 4}, classes, 5);
        ASSERT_EQ(data.samples(), 2048);
        for (int epoch = 0; epoch < 3; ++epoch) {
            std::map<int, int> seen, expected;
            for (int i = 0; i < data.samples(); ++i) {
                ++seen[data.label(std::int64_t{epoch} * data.samples() + i)];
                ++expected[i % classes];
            }
            EXPECT_EQ(seen, expected);
        }
    }
}

TEST(Order, FollowsTheSeedAlone) {
    const auto order = [](std::int64_t seed, int epoch) {
        const Dataset data = Dataset::synthetic({1, 4, 4}, 2048, seed);
        std::vector<int> labels;
        for (int i = 0; i < data.samples(); ++i)
            labels.push_back(data.label(std::int64_t{epoch} * data.samples() + i));
        return labels;
    };
    EXPECT_EQ(order(1, 0), order(1, 0));
    EXPECT_NE(order(1, 0), order(2, 0));
    EXPECT_NE(order(1, 0), order(1, 1));
    // the same on every machine
    const std::vector<int> first = order(1, 0);
    EXPECT_EQ(std::vector<int>(first.begin(), first.begin() + 4), (std::vector<int>{1272, 1025, 998, 1843}));
}

// A shuffle leaves about one sample in place, and neighbours apart.
TEST(Order, IsShuffled) {
    const Dataset data = Dataset::synthetic({1, 4, 4}, 2048, 1);
    int fixed = 0, neighbours = 0;
    for (int i = 0; i + 1 < data.samples(); ++i) {
        fixed += data.label(i) == i;
        neighbours += data.label(i) + 1 == data.label(i + 1);
    }
    EXPECT_LT(fixed, 10);
    EXPECT_LT(neighbours, 10);
}

// The nearest class mean, learned from one half, classifies the other half.
TEST(Synthetic, ClassesAreLearnable) {
    for (const Dims dims : {Dims{3, 32, 32}, Dims{3, 48, 48}, Dims{1, 28, 28}}) {
        const Dataset data = Dataset::synthetic(dims, 10, 3);
        EXPECT_EQ(data.input(), dims);
        const std::size_t pixels = static_cast<std::size_t>(dims.elements());
        std::vector<std::vector<double>> mean(10, std::vector<double>(pixels));
        std::vector<int> count(10);
        for (int i = 0; i < 200; ++i) {
            const std::vector<float> image = image_of(data, i);
            const auto label = static_cast<std::size_t>(data.label(i));
            ++count[label];
            for (std::size_t k = 0; k < pixels; ++k)
                mean[label][k] += image[k];
        }
        int right = 0;
        for (int i = 200; i < 400; ++i) {
            const std::vector<float> image = image_of(data, i);
            std::vector<double> distance(10);
            for (std::size_t c = 0; c < 10; ++c)
                for (std::size_t k = 0; k < pixels; ++k)
                    distance[c] += std::pow(image[k] - mean[c][k] / count[c], 2);
            right += std::min_element(distance.begin(), distance.end()) - distance.begin() == data.label(i);
        }
        EXPECT_GT(right, 190);
    }
}

TEST(Synthetic, ValuesAreCentred) {
    const Dataset data = Dataset::synthetic({3, 40, 40}, 10, 1);
    double sum = 0;
    for (int i = 0; i < 100; ++i)
        for (const float value : image_of(data, i)) {
            ASSERT_LT(std::abs(value), 3);
            sum += value;
        }
    EXPECT_LT(std::abs(sum / (100 * 4800)), 0.5);
}

TEST(Dataset, ManyThreadsReadTheSame) {
    const Dataset data = Dataset::synthetic({3, 40, 40}, 10, 1);
    std::vector<std::vector<float>> images(4);
    std::vector<std::thread> threads;
    for (std::vector<float>& image : images)
        threads.emplace_back([&] { image = image_of(data, 4711); });
    for (std::thread& thread : threads)
        thread.join();
    for (const std::vector<float>& image : images)
        EXPECT_EQ(image, images[0]);
}

}  // namespace
}  // namespace pw
