// The layer graphs of the built-in models against published numbers.
#include "tests/support/layer_of.h"
#include "workloads/error.h"
#include "workloads/models/mlp.h"
#include "workloads/models/models.h"
#include "workloads/models/resnet.h"

#include <gtest/gtest.h>
#include <boost/graph/topological_sort.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

using namespace pw;

namespace {

int size_of(const Model& model) { return static_cast<int>(num_vertices(model.layers)); }

std::int64_t parameters_of(const Model& model) {
    std::int64_t sum = 0;
    for (int layer = 0; layer < size_of(model); ++layer)
        sum += model.layers[layer].parameters;
    return sum;
}

double forward_macs(const Model& model, LayerKind kind) {
    double sum = 0;
    for (int layer = 0; layer < size_of(model); ++layer)
        if (model.layers[layer].kind == kind)
            sum += model.layers[layer].flops_forward / 2;
    return sum;
}

std::vector<std::string> names_of(const Model& model, const std::vector<int>& layers) {
    std::vector<std::string> names;
    for (const int layer : layers)
        names.push_back(model.layers[layer].name);
    return names;
}

}  // namespace

TEST(ResNet50, HasThePublishedParameters) {
    EXPECT_EQ(parameters_of(build_resnet50(224, 1000)), std::int64_t{25'557'032});
    EXPECT_EQ(parameters_of(build_resnet50(32, 1000)), std::int64_t{25'557'032});  // whatever the image
    EXPECT_EQ(parameters_of(build_resnet50(224, 10)), std::int64_t{25'557'032 - 990 * 2049});
}

TEST(ResNet50, DoesThePublishedWork) {
    const Model model = build_resnet50(224, 1000);
    EXPECT_NEAR(forward_macs(model, LayerKind::Convolution), 4.087e9, 0.0005e9);
    EXPECT_EQ(forward_macs(model, LayerKind::Linear), 2048 * 1000);
    EXPECT_EQ(forward_macs(model, LayerKind::BatchNorm), 0);
}

TEST(ResNet50, HasThePublishedLayers) {
    const Model model = build_resnet50(224, 1000);
    std::map<LayerKind, int> count;
    for (int layer = 0; layer < size_of(model); ++layer)
        ++count[model.layers[layer].kind];
    const std::map<LayerKind, int> expected = {
        {LayerKind::Convolution, 53}, {LayerKind::BatchNorm, 53}, {LayerKind::Add, 16},        {LayerKind::MaxPool, 1},
        {LayerKind::AveragePool, 1},  {LayerKind::Linear, 1},     {LayerKind::CrossEntropy, 1}};
    EXPECT_EQ(count, expected);
    EXPECT_EQ(model.layers[0].name, "conv1");
    EXPECT_EQ(model.layers[size_of(model) - 1].name, "loss");
}

TEST(ResNet50, HasThePublishedShapes) {
    const Model model = build_resnet50(224, 1000);
    EXPECT_EQ(layer_of(model, "conv1").output, (Dims{64, 112, 112}));
    EXPECT_EQ(layer_of(model, "maxpool").output, (Dims{64, 56, 56}));
    EXPECT_EQ(layer_of(model, "layer1.2.add").output, (Dims{256, 56, 56}));
    EXPECT_EQ(layer_of(model, "layer2.3.add").output, (Dims{512, 28, 28}));
    EXPECT_EQ(layer_of(model, "layer3.5.add").output, (Dims{1024, 14, 14}));
    EXPECT_EQ(layer_of(model, "layer4.2.add").output, (Dims{2048, 7, 7}));
    EXPECT_EQ(layer_of(model, "avgpool").output, (Dims{2048, 1, 1}));
    EXPECT_EQ(layer_of(model, "fc").output, (Dims{1000, 1, 1}));
}

TEST(ResNet50, StridesInTheThreeByThree) {
    const Model model = build_resnet50(224, 1000);
    EXPECT_EQ(layer_of(model, "layer2.0.conv1").stride, 1);
    EXPECT_EQ(layer_of(model, "layer2.0.conv2").stride, 2);
    EXPECT_EQ(layer_of(model, "layer2.0.downsample.0").stride, 2);
    EXPECT_EQ(layer_of(model, "layer1.0.conv2").stride, 1);
    EXPECT_EQ(layer_of(model, "layer1.0.downsample.0").stride, 1);
    EXPECT_EQ(layer_of(model, "layer2.1.conv2").stride, 1);
}

TEST(ResNet50, OrdersTheFirstBlockWithTheShortcutLast) {
    const Model model = build_resnet50(64, 10);
    std::vector<int> first;
    for (int layer = 0; layer < 12; ++layer)
        first.push_back(layer);
    EXPECT_EQ(names_of(model, first),
              (std::vector<std::string>{"conv1", "bn1", "maxpool", "layer1.0.conv1", "layer1.0.bn1", "layer1.0.conv2",
                                        "layer1.0.bn2", "layer1.0.conv3", "layer1.0.bn3", "layer1.0.downsample.0",
                                        "layer1.0.downsample.1", "layer1.0.add"}));
    const auto inputs = [&](std::string_view name) {
        return names_of(model, inputs_of_layer(model.layers, find_layer(model.layers, name)));
    };
    EXPECT_EQ(inputs("layer1.0.add"), (std::vector<std::string>{"layer1.0.bn3", "layer1.0.downsample.1"}));
    EXPECT_EQ(inputs("layer1.1.add"), (std::vector<std::string>{"layer1.1.bn3", "layer1.0.add"}));
    EXPECT_TRUE(inputs("conv1").empty());
    const int maxpool = find_layer(model.layers, "maxpool");
    EXPECT_EQ(names_of(model, readers_of_layer(model.layers, maxpool)),
              (std::vector<std::string>{"layer1.0.conv1", "layer1.0.downsample.0"}));
}

TEST(ResNet50, FusesReluWhereTorchvisionHasOne) {
    const Model model = build_resnet50(64, 10);
    int fused = 0;
    for (int layer = 0; layer < size_of(model); ++layer)
        fused += model.layers[layer].relu;
    EXPECT_EQ(fused, 49);  // one after the stem, three per block
    EXPECT_TRUE(layer_of(model, "bn1").relu);
    EXPECT_FALSE(layer_of(model, "layer1.0.bn3").relu);
    EXPECT_FALSE(layer_of(model, "layer1.0.downsample.1").relu);
    EXPECT_TRUE(layer_of(model, "layer1.0.add").relu);
}

class SmallImages : public testing::TestWithParam<int> {};

TEST_P(SmallImages, EndAtOneThirtySecond) {
    const int size = GetParam();
    const Model model = build_resnet50(size, 10);
    const int last = (size + 31) / 32;
    EXPECT_EQ(layer_of(model, "layer4.2.add").output, (Dims{2048, last, last}));
    EXPECT_EQ(model.input, (Dims{3, size, size}));
}
INSTANTIATE_TEST_SUITE_P(Sizes, SmallImages, testing::Values(32, 33, 63, 64, 65, 96, 225));

TEST(ResNet50, RefusesTooSmallImages) {
    for (const int size : {31, 0, -5}) {
        try {
            build_resnet50(size, 10);
            ADD_FAILURE() << size;
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::BadInput);
            EXPECT_NE(std::string(error.what()).find("at least 32"), std::string::npos) << error.what();
        }
    }
    EXPECT_THROW(build_resnet50(32, 0), Error);
}

TEST(Mlp, HasReluAfterEveryLinearLayer) {
    const Model model = build_mlp({1, 28, 28}, 10);
    std::vector<int> all;
    for (int layer = 0; layer < size_of(model); ++layer)
        all.push_back(layer);
    EXPECT_EQ(names_of(model, all), (std::vector<std::string>{"fc1", "relu1", "fc2", "relu2", "fc3", "relu3", "loss"}));
    const std::int64_t parameters = 784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10;
    EXPECT_EQ(parameters_of(model), parameters);
    EXPECT_EQ(layer_of(model, "fc3").output, (Dims{10, 1, 1}));
    EXPECT_THROW(build_mlp({0, 28, 28}, 10), Error);
    EXPECT_THROW(build_mlp({1, 28, 28}, 0), Error);
}

TEST(LayerGraph, VerticesAreInTopologicalOrder) {
    for (const Model& model : {build_resnet50(64, 10), build_mlp({3, 32, 32}, 10)}) {
        std::vector<std::size_t> order;
        EXPECT_NO_THROW(boost::topological_sort(model.layers, std::back_inserter(order)));  // throws on a cycle
        EXPECT_EQ(order.size(), num_vertices(model.layers));
        for (int layer = 0; layer < size_of(model); ++layer)
            for (const int input : inputs_of_layer(model.layers, layer))
                EXPECT_LT(input, layer);
    }
}

TEST(LayerGraph, EveryTensorButTheLossIsReadAndFits) {
    const Model model = build_resnet50(64, 10);
    for (int layer = 0; layer < size_of(model); ++layer) {
        const auto readers = readers_of_layer(model.layers, layer);
        EXPECT_EQ(readers.empty(), layer == size_of(model) - 1);
        EXPECT_TRUE(std::is_sorted(readers.begin(), readers.end()));
        for (const int reader : readers)
            EXPECT_EQ(model.layers[reader].input, model.layers[layer].output);
    }
}

TEST(LayerGraph, ALayerThatReadsOneTensorTwiceIsOneReader) {
    Model model = build_mlp({1, 2, 2}, 3);
    const Dims dims{1, 1, 1};
    const int twice =
        add_layer(model.layers, {.name = "twice", .kind = LayerKind::Add, .input = dims, .output = dims}, {6, 6});
    EXPECT_EQ(inputs_of_layer(model.layers, twice), (std::vector<int>{6, 6}));
    EXPECT_EQ(readers_of_layer(model.layers, 6), (std::vector<int>{twice}));
}

TEST(LayerGraph, RefusesLayersThatDoNotFit) {
    Model model = build_mlp({1, 2, 2}, 3);
    const Dims dims{1, 1, 1};
    const auto add = [&](const std::string& name, LayerKind kind, const std::vector<int>& inputs) {
        return add_layer(model.layers, {.name = name, .kind = kind, .input = dims, .output = dims}, inputs);
    };
    EXPECT_THROW(add("fc1", LayerKind::Relu, {6}), Error);   // the name is taken
    EXPECT_THROW(add("a", LayerKind::Relu, {0}), Error);     // the shape differs
    EXPECT_THROW(add("a", LayerKind::Relu, {7}), Error);     // not there yet
    EXPECT_THROW(add("a", LayerKind::Relu, {6, 6}), Error);  // too many
    EXPECT_THROW(add("a", LayerKind::Add, {6}), Error);      // too few
    EXPECT_EQ(num_vertices(model.layers), 7u);
}

TEST(LayerFacts, CountMasksAndProbabilities) {
    const auto masks = [](const Layer& layer, Precision precision = Precision::Fp32) {
        return facts_of(layer.kind).mask_bytes(layer, bytes_of(precision));
    };
    const Model model = build_resnet50(224, 1000);
    EXPECT_EQ(masks(layer_of(model, "layer1.0.conv2")), 0);
    EXPECT_EQ(masks(layer_of(model, "bn1")), layer_of(model, "bn1").output.elements());  // a byte each
    EXPECT_EQ(masks(layer_of(model, "layer1.0.bn3")), 0);                                // its ReLU is the add's
    EXPECT_EQ(masks(layer_of(model, "layer1.0.add")), layer_of(model, "layer1.0.add").output.elements());
    EXPECT_EQ(masks(layer_of(model, "maxpool")), layer_of(model, "maxpool").output.elements());
    EXPECT_EQ(masks(layer_of(model, "avgpool")), 0);
    for (const Precision precision : {Precision::Fp32, Precision::Bf16})
        EXPECT_EQ(masks(layer_of(model, "loss"), precision), 4 * 1000);
    const Layer attention{
        .name = "attn", .kind = LayerKind::Attention, .input = {1, 16, 96}, .output = {1, 16, 32}, .heads = 4};
    EXPECT_EQ(masks(attention), 4 * 4 * 16 * 16);
    EXPECT_EQ(masks(attention, Precision::Bf16), 2 * 4 * 16 * 16);
}

TEST(FinishLayer, EachPassOfALayerDoesTheSameWorkButOnTheData) {
    for (const Model& model : {build_resnet50(64, 10), build_mlp({3, 32, 32}, 10)})
        for (int number = 0; number < size_of(model); ++number) {
            const Layer& layer = model.layers[number];
            EXPECT_EQ(layer.flops_weight, layer.flops_forward);
            EXPECT_EQ(layer.flops_input, number == 0 ? 0 : layer.flops_forward);
            EXPECT_EQ(layer.flops_forward > 0, has_weight_pass(layer.kind));
        }
}

TEST(LayerKinds, HaveNames) {
    EXPECT_EQ(name_of(LayerKind::Convolution), "convolution");
    EXPECT_EQ(name_of(LayerKind::CrossEntropy), "cross entropy");
}

TEST(BuiltInModels, HaveTheirNameAndLabelsAtTheirDefaults) {
    for (const BuiltInModel* row : built_in_models()) {
        if (row->build == nullptr)
            continue;
        ModelOptions options;
        options.image_size = row->image_size > 0 ? row->image_size : 28;
        const Model model = row->build(options, 1, LayerKind::MeanSquaredError);
        EXPECT_EQ(model.name, row->name);
        const int labels = row->labels == Labels::PerImage   ? 1
                           : row->labels == Labels::PerPixel ? model.input.height * model.input.width
                                                             : options.sequence_length;
        EXPECT_EQ(labels_per_sample(model), labels) << row->name;
        EXPECT_EQ(model.layers[num_vertices(model.layers) - 1].kind, LayerKind::MeanSquaredError);
        EXPECT_EQ(find_model(row->name), row);
    }
    EXPECT_EQ(find_model("resnet"), nullptr);
}

TEST(LayerKinds, HaveNamesOfTheirOwn) {
    std::set<std::string_view> names;
    for (int kind = 0; kind <= static_cast<int>(LayerKind::Last); ++kind)
        EXPECT_TRUE(names.insert(name_of(static_cast<LayerKind>(kind))).second) << kind;
}
