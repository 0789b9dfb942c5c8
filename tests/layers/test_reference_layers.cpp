// The reference kernels in double against central differences: the derivative of <p, output> for a random p (of the
// loss itself for loss layers) with respect to every input and every trained parameter.
#include "tests/support/derivatives.h"
#include "tests/support/layer_case.h"

#include <gtest/gtest.h>

#include <cmath>

namespace pw {
namespace {

class ReferenceLayers : public testing::TestWithParam<LayerCase> {};

TEST_P(ReferenceLayers, GradientsAreDerivatives) {
    LayerRig rig(reference_kernels_double(), GetParam().layer, GetParam().samples);
    rig.fill(1);
    rig.forward();
    rig.backward();
    for (std::size_t k = 0; k < rig.inputs.size(); ++k)
        expect_derivative(rig, rig.inputs[k], rig.input_gradients[k], rig.input_elements(static_cast<int>(k)), "input");
    std::int64_t trained = 0;
    for (const ParameterShape& shape : parameters_of(rig.layer))
        trained += shape.trained ? shape.elements() : 0;
    expect_derivative(rig, rig.weights, rig.weight_gradient, trained, "parameter");
}

const Dims kSmall{3, 5, 6};
INSTANTIATE_TEST_SUITE_P(
    Kinds, ReferenceLayers,
    testing::Values(LayerCase{"Convolution1x1", make_layer(LayerKind::Convolution, {4, 3, 3}, 5), 2},
                    LayerCase{"Convolution3x3", make_layer(LayerKind::Convolution, kSmall, 4, 3, 1, 1), 2},
                    LayerCase{"Convolution3x3Stride2", make_layer(LayerKind::Convolution, kSmall, 2, 3, 2, 1), 2},
                    LayerCase{"Convolution1x1Stride2", make_layer(LayerKind::Convolution, {3, 6, 5}, 2, 1, 2, 0), 2},
                    LayerCase{"Convolution7x7Stride2", make_layer(LayerKind::Convolution, {2, 9, 8}, 2, 7, 2, 3), 1},
                    LayerCase{"ConvolutionOnePixel", make_layer(LayerKind::Convolution, {3, 1, 1}, 2, 3, 1, 1), 3},
                    LayerCase{"BatchNorm", make_layer(LayerKind::BatchNorm, {3, 3, 4}, 3), 3},
                    LayerCase{"BatchNormRelu", make_layer(LayerKind::BatchNorm, {3, 3, 4}, 3, 1, 1, 0, true), 3},
                    LayerCase{"BatchNormOnePixel", make_layer(LayerKind::BatchNorm, {4, 1, 1}, 4), 5},
                    LayerCase{"Relu", make_layer(LayerKind::Relu, kSmall, 3), 2},
                    LayerCase{"Add", make_layer(LayerKind::Add, kSmall, 3), 2},
                    LayerCase{"AddRelu", make_layer(LayerKind::Add, kSmall, 3, 1, 1, 0, true), 2},
                    LayerCase{"Concat", make_layer(LayerKind::Concat, {2, 3, 4}, 5), 3},
                    LayerCase{"Dropout", dropout(kSmall, 0.4), 2},
                    LayerCase{"Upsample", make_layer(LayerKind::Upsample, {2, 3, 2}, 2, 1, 2), 2},
                    LayerCase{"UpsampleThrice", make_layer(LayerKind::Upsample, {2, 1, 3}, 2, 1, 3), 2},
                    LayerCase{"MaxPool", make_layer(LayerKind::MaxPool, {2, 7, 6}, 2, 3, 2, 1), 2},
                    LayerCase{"MaxPool2x2", make_layer(LayerKind::MaxPool, {2, 6, 4}, 2, 2, 2, 0), 2},
                    LayerCase{"AveragePool", make_layer(LayerKind::AveragePool, {4, 3, 5}, 4), 2},
                    LayerCase{"Linear", make_layer(LayerKind::Linear, {3, 2, 2}, 5), 3},
                    LayerCase{"CrossEntropy", make_layer(LayerKind::CrossEntropy, {7, 1, 1}, 1), 4},
                    LayerCase{"CrossEntropyOfPixels", make_layer(LayerKind::CrossEntropy, {5, 3, 2}, 1), 2},
                    LayerCase{"CrossEntropyOfRows", make_layer(LayerKind::CrossEntropy, {1, 4, 6}, 1), 2},
                    LayerCase{"MeanSquaredError", make_layer(LayerKind::MeanSquaredError, {7, 1, 1}, 1), 4},
                    LayerCase{"MeanSquaredErrorOfPixels", make_layer(LayerKind::MeanSquaredError, {3, 2, 4}, 1), 2}),
    [](const auto& tested) { return tested.param.name; });

TEST(ReferenceMaxPool, TakesTheFirstOfEqualMaxima) {
    LayerRig rig(reference_kernels(), make_layer(LayerKind::MaxPool, {1, 2, 2}, 1, 2, 2, 0), 1);
    rig.fill(1);
    rig.kernel->fill_input({1, 2, 2, 2}, rig.inputs[0].get());
    rig.fill_gradient({5});
    rig.forward();
    rig.backward();
    EXPECT_EQ(rig.plain_output(), std::vector<float>{2});
    EXPECT_EQ(rig.plain_input_gradient(0), (std::vector<float>{0, 5, 0, 0}));
}

TEST(ReferenceCrossEntropy, OfEqualLogitsIsTheLogarithmOfTheClasses) {
    LayerRig rig(reference_kernels(), make_layer(LayerKind::CrossEntropy, {10, 1, 1}, 1), 3);
    rig.kernel->fill_input(std::vector<float>(30, 2.5f), rig.inputs[0].get());
    rig.forward();
    EXPECT_NEAR(rig.loss(), 3 * std::log(10.0), 1e-12);
}

TEST(ReferenceCrossEntropy, IsTheMeanOverThePositions) {
    LayerRig image(reference_kernels(), make_layer(LayerKind::CrossEntropy, {2, 1, 2}, 1), 1);  // labels 1, 0
    image.kernel->fill_input({0, 3, 0, 0}, image.inputs[0].get());                              // equal logits; 3 and 0
    image.forward();
    const double sure = std::log(1 + std::exp(-3.0));
    EXPECT_NEAR(image.loss(), (std::log(2.0) + sure) / 2, 1e-12);
    LayerRig rows(reference_kernels(), make_layer(LayerKind::CrossEntropy, {1, 2, 2}, 1), 1);
    rows.kernel->fill_input({0, 0, 3, 0}, rows.inputs[0].get());
    rows.forward();
    EXPECT_EQ(rows.loss(), image.loss());
}

TEST(ReferenceMeanSquaredError, ComparesWithTheOneHotLabel) {
    LayerRig rig(reference_kernels(), make_layer(LayerKind::MeanSquaredError, {4, 1, 1}, 1), 2);  // labels 1, 0
    rig.kernel->fill_input({0.5f, 1, 0, 0, 0, 0, 0, 2}, rig.inputs[0].get());
    rig.loss_scale = 0.5;
    rig.forward();
    EXPECT_EQ(rig.loss(), 0.25 / 4 + (1.0 + 4) / 4);
    rig.backward();
    EXPECT_EQ(rig.plain_input_gradient(0), (std::vector<float>{0.125f, 0, 0, 0, -0.25f, 0, 0, 0.5f}));
}

TEST(ReferenceConcat, PutsTheSecondInputAfterTheFirst) {
    LayerRig rig(reference_kernels(), make_layer(LayerKind::Concat, {1, 1, 2}, 3), 2);
    rig.kernel->fill_input({1, 2, 3, 4}, rig.inputs[0].get(), 0);
    rig.kernel->fill_input({5, 6, 7, 8, 9, 10, 11, 12}, rig.inputs[1].get(), 1);
    rig.forward();
    EXPECT_EQ(rig.plain_output(), (std::vector<float>{1, 2, 5, 6, 7, 8, 3, 4, 9, 10, 11, 12}));
}

TEST(ReferenceUpsample, RepeatsTheNearest) {
    LayerRig rig(reference_kernels(), make_layer(LayerKind::Upsample, {1, 1, 2}, 1, 1, 2), 1);
    rig.kernel->fill_input({1, 2}, rig.inputs[0].get());
    rig.forward();
    EXPECT_EQ(rig.plain_output(), (std::vector<float>{1, 1, 2, 2, 1, 1, 2, 2}));
}

TEST(ReferenceUpdate, IsMomentumSgd) {
    std::vector<float> w(16, 1), g(16, 0.5f), v(16, 2), next(16);
    const Sgd sgd{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.2};
    const auto bytes = [](std::vector<float>& values) { return reinterpret_cast<std::byte*>(values.data()); };
    reference_kernels().update(sgd, bytes(w), bytes(g), {bytes(v)}, bytes(next), 64);
    EXPECT_FLOAT_EQ(v[3], 0.9f * 2 + 0.5f + 0.2f);
    EXPECT_FLOAT_EQ(next[15], 1 - 0.1f * v[3]);
    EXPECT_EQ(w[0], 1);
    reference_kernels().add(bytes(g), bytes(w), 64);
    EXPECT_EQ(w[7], 1.5f);
}

}  // namespace
}  // namespace pw
