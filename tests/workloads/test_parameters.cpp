#include "workloads/models/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace pw {
namespace {

Layer convolution(int inputs, int outputs, int kernel) {
    Layer layer{
        .name = "layer1.0.conv2", .kind = LayerKind::Convolution, .input = {inputs, 8, 8}, .output = {outputs, 8, 8}};
    layer.kernel = kernel;
    layer.padding = kernel / 2;
    return layer;
}

Layer linear(Dims input, int outputs) {
    return {.name = "fc", .kind = LayerKind::Linear, .input = input, .output = {outputs, 1, 1}};
}

Layer batch_norm(int channels) {
    return {.name = "bn1", .kind = LayerKind::BatchNorm, .input = {channels, 4, 4}, .output = {channels, 4, 4}};
}

double mean_square(const std::vector<float>& values) {
    double sum = 0;
    for (float value : values)
        sum += double{value} * value;
    return sum / static_cast<double>(values.size());
}

TEST(Parameters, AreNamedAndShapedLikePyTorchs) {
    const auto weights = parameters_of(convolution(3, 5, 7));
    ASSERT_EQ(weights.size(), 1u);
    EXPECT_EQ(weights[0].name, "layer1.0.conv2.weight");
    EXPECT_EQ(weights[0].shape, (std::vector<int>{5, 3, 7, 7}));
    EXPECT_EQ(weights[0].elements(), 5 * 3 * 7 * 7);

    const auto norm = parameters_of(batch_norm(6));
    ASSERT_EQ(norm.size(), 4u);
    EXPECT_EQ(norm[2].name, "bn1.running_mean");
    EXPECT_TRUE(norm[1].trained);
    EXPECT_FALSE(norm[3].trained);

    const auto dense = parameters_of(linear({4, 2, 2}, 10));
    ASSERT_EQ(dense.size(), 2u);
    EXPECT_EQ(dense[0].shape, (std::vector<int>{10, 16}));
    EXPECT_EQ(dense[1].shape, (std::vector<int>{10}));
}

TEST(Parameters, ValuesDependOnNameAndSeedAlone) {
    Layer layer = convolution(16, 16, 3);
    const ParameterShape shape = parameters_of(layer)[0];
    const auto values = initial_values(shape, 1);
    EXPECT_EQ(values, initial_values(shape, 1));
    EXPECT_NE(values, initial_values(shape, 2));
    layer.name = "layer1.0.conv3";
    EXPECT_NE(values, initial_values(parameters_of(layer)[0], 1));
}

TEST(Parameters, HaveTheirDistribution) {
    const Layer layer = convolution(64, 64, 3);
    EXPECT_NEAR(mean_square(initial_values(parameters_of(layer)[0], 7)), 2.0 / (64 * 9), 1e-4);

    const Layer dense = linear({256, 1, 1}, 100);
    const auto values = initial_values(parameters_of(dense)[0], 7);
    EXPECT_LE(*std::ranges::max_element(values), 1.0f / 16);
    EXPECT_GE(*std::ranges::min_element(values), -1.0f / 16);
    EXPECT_NEAR(mean_square(values), 1.0 / 256 / 3, 2e-5);

    const Layer norm = batch_norm(3);
    const auto shapes = parameters_of(norm);
    EXPECT_EQ(initial_values(shapes[0], 1), std::vector<float>(3, 1));
    EXPECT_EQ(initial_values(shapes[1], 1), std::vector<float>(3, 0));
    EXPECT_EQ(initial_values(shapes[2], 1), std::vector<float>(3, 0));
    EXPECT_EQ(initial_values(shapes[3], 1), std::vector<float>(3, 1));
}

TEST(WeightsHash, IgnoresTheOrderAndSeesEveryChange) {
    const NamedTensor a{"a", {2}, {1, 2}}, b{"b", {1, 2}, {3, 4}};
    const std::string hash = hash_of({a, b});
    EXPECT_EQ(hash.size(), 16u);
    EXPECT_EQ(hash, hash_of({b, a}));
    NamedTensor other = b;
    other.values[1] = std::nextafter(4.0f, 5.0f);
    EXPECT_NE(hash, hash_of({a, other}));
    other = b;
    other.shape = {2, 1};
    EXPECT_NE(hash, hash_of({a, other}));
    other = b;
    other.name = "c";
    EXPECT_NE(hash, hash_of({a, other}));
}

}  // namespace
}  // namespace pw
