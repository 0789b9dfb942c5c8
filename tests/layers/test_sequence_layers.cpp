// Layers on rows of tokens: the reference kernels against derivatives and closed forms, the cpu kernels against
// the reference.
#include "tests/support/derivatives.h"
#include "tests/support/layer_laws.h"
#include "tests/support/sequence_cases.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace pw {
namespace {

class ReferenceSequenceLayers : public testing::TestWithParam<LayerCase> {};

TEST_P(ReferenceSequenceLayers, GradientsAreDerivatives) {
    LayerRig rig = filled(reference_kernels_double(), GetParam());
    rig.forward();
    rig.backward();
    for (std::size_t k = 0; k < rig.inputs.size() && rig.layer.kind != LayerKind::Embedding; ++k)
        expect_derivative(rig, rig.inputs[k], rig.input_gradients[k], rig.input_elements(static_cast<int>(k)), "input");
    std::int64_t trained = 0;
    for (const ParameterShape& shape : parameters_of(rig.layer))
        trained += shape.elements();
    expect_derivative(rig, rig.weights, rig.weight_gradient, trained, "parameter");
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ReferenceSequenceLayers,
    testing::Values(embedding(6, 7, 5, 3), simple("PositionBias", LayerKind::PositionBias, 5, 6, 3),
                    simple("LayerNorm", LayerKind::LayerNorm, 4, 7, 2), simple("Gelu", LayerKind::Gelu, 3, 5, 2),
                    row_linear(4, 5, 7, 2, true), row_linear(4, 5, 7, 2, false), attention(5, 6, 1, 1),
                    attention(5, 6, 3, 2), attention(1, 4, 2, 2), grouped_attention(5, 6, 3, 3, 2),
                    grouped_attention(5, 8, 4, 2, 2), grouped_attention(4, 6, 3, 1, 1), rotary(5, 12, 2, 2),
                    rotary(3, 2, 1, 1), simple("RmsNorm", LayerKind::RmsNorm, 4, 7, 2),
                    simple("GatedSilu", LayerKind::GatedSilu, 3, 5, 2)),
    [](const auto& tested) { return tested.param.name; });

class CpuSequenceLayers : public testing::TestWithParam<LayerCase> {};

TEST_P(CpuSequenceLayers, ComputeWhatTheReferenceDoes) {
    compute_what_the_reference_does(filled(cpu_kernels(), GetParam()), filled(reference_kernels(), GetParam()),
                                    kTolerance);
}

class CpuSequenceLayersWithParameters : public CpuSequenceLayers {};

TEST_P(CpuSequenceLayersWithParameters, AddUpWeightGradients) {
    add_up_weight_gradients(filled(cpu_kernels(), GetParam()), kTolerance);
}

class CpuLayersOfValues : public CpuSequenceLayers {};

TEST_P(CpuLayersOfValues, KeepNaN) {
    keep_nan(filled(cpu_kernels(), GetParam()));
    keep_nan(filled(reference_kernels(), GetParam()));
}

TEST_P(CpuSequenceLayers, WriteNothingElseWithoutSaving) {
    LayerRig saving = filled(cpu_kernels(), GetParam()), tested = filled(cpu_kernels(), GetParam());
    saving.forward(true);
    LayerArgs args = tested.args();
    args.saved = args.kept = nullptr;
    tested.kernel->forward(args, false);
    EXPECT_EQ(tested.plain_output(), saving.plain_output());
}

TEST_P(CpuSequenceLayersWithParameters, SkipUnneededInputGradients) {
    skip_unwanted_input_gradients(filled(cpu_kernels(), GetParam()), filled(cpu_kernels(), GetParam()));
}

TEST_P(CpuSequenceLayers, RoundTripExactly) {
    const LayerRig tested = filled(cpu_kernels(), GetParam());
    round_trip_exactly(tested, filled(reference_kernels(), GetParam()),
                       random_values(tested.samples * tested.layer.input.elements(), 3),
                       random_values(tested.output_elements(), 4));
}

TEST_P(CpuSequenceLayers, HaveAlignedSizes) { have_aligned_sizes(filled(cpu_kernels(), GetParam()).sizes); }

TEST_P(CpuSequenceLayers, RepeatTheirBits) {
    repeat_their_bits(filled(cpu_kernels(), GetParam()), filled(cpu_kernels(), GetParam()));
}

// All layers except products, whose work oneDNN divides among the threads.
class CpuOwnLoops : public CpuSequenceLayers {};

TEST_P(CpuOwnLoops, ComputeAlikeOnAnyNumberOfThreads) {
    LayerRig one = filled(cpu_kernels(), GetParam()), three = filled(cpu_kernels(), GetParam());
    cpu_kernels().start_device(1);
    one.forward();
    one.backward();
    cpu_kernels().start_device(3);
    three.forward();
    three.backward();
    cpu_kernels().start_device(1);
    EXPECT_EQ(one.plain_output(), three.plain_output());
    for (std::size_t k = 0; k < one.inputs.size(); ++k)
        EXPECT_EQ(one.plain_input_gradient(k), three.plain_input_gradient(k));
    EXPECT_EQ(one.parameter_gradients(), three.parameter_gradients());
}

// Widths around sixteen floats, lengths around a block of attention's rows.
std::vector<LayerCase> cpu_cases() {
    std::vector<LayerCase> cases{
        embedding(6, 7, 5, 3),           embedding(33, 50, 64, 4),          row_linear(4, 5, 7, 2, true),
        row_linear(64, 48, 80, 4, true), row_linear(64, 48, 256, 4, false), row_linear(5, 17, 3, 1, false)};
    for (const int width : {1, 7, 16, 33, 128})
        for (const int length : {1, 5, 130}) {
            cases.push_back(simple("PositionBias", LayerKind::PositionBias, length, width, 3));
            if (width > 1) {  // the gradient of a single value is zero, or nearly
                cases.push_back(simple("LayerNorm", LayerKind::LayerNorm, length, width, 3));
                cases.push_back(simple("RmsNorm", LayerKind::RmsNorm, length, width, 3));
            }
            cases.push_back(simple("Gelu", LayerKind::Gelu, length, width, 3));
            cases.push_back(simple("GatedSilu", LayerKind::GatedSilu, length, width, 3));
            cases.push_back(rotary(length, 6 * width, 3, 2));
        }
    for (const int length : {1, 2, 31, 32, 33, 64, 70})
        cases.push_back(attention(length, 24, 3, 2));
    cases.push_back(attention(128, 64, 4, 2));
    cases.push_back(attention(20, 5, 5, 2));
    for (const int length : {1, 32, 33, 70})
        for (const int key_value_heads : {1, 2, 4})
            cases.push_back(grouped_attention(length, 24, 4, key_value_heads, 2));
    return cases;
}
std::vector<LayerCase> cpu_cases_that(bool (*fit)(const Layer& layer)) {
    std::vector<LayerCase> cases = cpu_cases();
    std::erase_if(cases, [&](const LayerCase& each) { return !fit(each.layer); });
    return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, CpuSequenceLayers, testing::ValuesIn(cpu_cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(
    Shapes, CpuSequenceLayersWithParameters,
    testing::ValuesIn(cpu_cases_that([](const Layer& layer) { return !parameters_of(layer).empty(); })), name_of_case);
INSTANTIATE_TEST_SUITE_P(Shapes, CpuLayersOfValues,  // not embeddings, which take tokens
                         testing::ValuesIn(cpu_cases_that([](const Layer& layer) {
                             return layer.kind != LayerKind::Embedding;
                         })),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Shapes, CpuOwnLoops, testing::ValuesIn(cpu_cases_that([](const Layer& layer) {
                             return layer.kind != LayerKind::RowLinear;
                         })),
                         name_of_case);

class EveryBackend : public testing::TestWithParam<const HostKernels*> {
protected:
    LayerRig rig(const LayerCase& tested) const { return filled(*GetParam(), tested); }
    void set_input(LayerRig& rig, const std::vector<float>& values) const {
        rig.kernel->fill_input(values, rig.inputs[0].get());
    }
};
INSTANTIATE_TEST_SUITE_P(Kernels, EveryBackend, testing::Values(&cpu_kernels(), &reference_kernels()),
                         [](const auto& kernels) { return std::string(kernels.param->name()); });

TEST_P(EveryBackend, AttentionReadsNoLaterRows) {
    constexpr int kLength = 50, kWidth = 8, kChanged = 37;
    LayerRig tested = rig(attention(kLength, kWidth, 2, 1));
    std::vector<float> input = random_values(kLength * 3 * kWidth, 1);
    set_input(tested, input);
    tested.forward();
    const std::vector<float> before = tested.plain_output();
    std::fill_n(input.begin() + kChanged * 3 * kWidth, 3 * kWidth, 3.0f);
    set_input(tested, input);
    tested.forward();
    const std::vector<float> after = tested.plain_output();
    const auto place = kChanged * kWidth;
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + place, after.begin()));
    EXPECT_FALSE(std::equal(before.begin() + place, before.begin() + place + kWidth, after.begin() + place));
}

// Equal values are unchanged, since the probabilities of a row add up to one. With equal keys the output is the
// mean of the values.
TEST_P(EveryBackend, AttentionTakesMeans) {
    constexpr int kLength = 40, kWidth = 4;
    LayerRig tested = rig(attention(kLength, kWidth, 2, 1));
    std::vector<float> input = random_values(kLength * 3 * kWidth, 1, 4);
    for (std::size_t row = 0; row < kLength; ++row)
        std::fill_n(input.begin() + static_cast<std::ptrdiff_t>((row * 3 + 2) * kWidth), kWidth, 1.0f);
    set_input(tested, input);
    tested.forward();
    for (const float value : tested.plain_output())
        EXPECT_NEAR(value, 1, 1e-5);
    for (std::size_t row = 0; row < kLength; ++row) {
        std::fill_n(input.begin() + static_cast<std::ptrdiff_t>((row * 3 + 1) * kWidth), kWidth, 0.5f);
        std::fill_n(input.begin() + static_cast<std::ptrdiff_t>((row * 3 + 2) * kWidth), kWidth,
                    static_cast<float>(row));
    }
    set_input(tested, input);
    tested.forward();
    for (std::size_t row = 0; row < kLength; ++row)
        EXPECT_NEAR(tested.plain_output()[row * kWidth], static_cast<float>(row) / 2, 1e-4);
}

TEST_P(EveryBackend, LayerNormOfEqualValuesIsItsShift) {
    constexpr int kWidth = 20;
    LayerRig tested = rig(simple("LayerNorm", LayerKind::LayerNorm, 3, kWidth, 1));
    set_input(tested, std::vector<float>(3 * kWidth, 7.25f));
    tested.forward();
    const std::vector<float> shift = tested.parameters()[1];
    for (std::size_t i = 0; i < 3 * kWidth; ++i)
        EXPECT_EQ(tested.plain_output()[i], shift[i % kWidth]);
    tested.backward();
    for (const float slope : tested.plain_input_gradient(0))
        EXPECT_TRUE(std::isfinite(slope));
}

TEST_P(EveryBackend, LayerNormRemovesMeanAndDeviation) {
    LayerRig tested = rig(simple("LayerNorm", LayerKind::LayerNorm, 1, 4, 1));
    tested.kernel->load({{1, 1, 1, 2}, {0, 0, 0, 5}}, tested.weights.get(), tested.statistics.get());
    set_input(tested, {1001, 1003, 1001, 1003});  // deviation 1
    tested.forward();
    expect_close(tested.plain_output(), {-1, 1, -1, 7}, kTolerance, "output");
}

TEST_P(EveryBackend, GeluFollowsTheNormalDistribution) {
    LayerRig tested = rig(simple("Gelu", LayerKind::Gelu, 1, 8, 1));
    set_input(tested, {0, 1, -1, 2, -2, 30, -30, 0.5f});
    tested.fill_gradient(std::vector<float>(8, 1));
    tested.forward();
    tested.backward();
    expect_close(tested.plain_output(),
                 {0, 0.841344746f, -0.158655254f, 1.954499736f, -0.045500264f, 30, 0, 0.345731231f}, 1e-6, "output");
    expect_close(tested.plain_input_gradient(0),
                 {0.5f, 1.083315471f, -0.083315471f, 1.085231801f, -0.085231801f, 1, 0, 0.867495125f}, 1e-6,
                 "gradient");
}

TEST_P(EveryBackend, EmbeddingReadsRowsAndAddsUpTheirGradients) {
    LayerRig tested = rig(embedding(4, 3, 2, 1));
    tested.kernel->load({{1, 2, 3, 4, 5, 6}}, tested.weights.get(), tested.statistics.get());
    set_input(tested, {2, 0, 2, 2});
    tested.fill_gradient({1, 10, 2, 20, 3, 30, 4, 40});
    tested.forward();
    tested.backward();
    EXPECT_EQ(tested.plain_output(), (std::vector<float>{5, 6, 1, 2, 5, 6, 5, 6}));
    EXPECT_EQ(tested.parameter_gradients()[0], (std::vector<float>{2, 20, 0, 0, 8, 80}));
}

// Tied layers need this: both blocks are the same table in plain order.
TEST_P(EveryBackend, ATableIsOneBlockInAnEmbeddingAndInALinearLayer) {
    LayerRig table = rig(embedding(4, 7, 5, 2)), head = rig(row_linear(4, 5, 7, 2, false));
    ASSERT_EQ(table.sizes.weights, head.sizes.weights);
    const std::vector<std::vector<float>> values{random_values(7 * 5, 1)};
    for (LayerRig* each : {&table, &head})
        each->kernel->load(values, each->weights.get(), each->statistics.get());
    EXPECT_EQ(std::memcmp(table.weights.get(), head.weights.get(), static_cast<std::size_t>(head.sizes.weights)), 0);
}

TEST_P(EveryBackend, NamesALayerWithoutAKernel) {
    try {
        (void)GetParam()->make(rows(LayerKind::Profiled, 1, 1, 1), 1, false);
        FAIL();
    } catch (const std::exception& error) {
        EXPECT_EQ(std::string(error.what())
                      .find(fmt::format("backend {} has no kernel for 'profiled', which layer 'tested' needs",
                                        GetParam()->name())),
                  0u)
            << error.what();
    }
}

}  // namespace
}  // namespace pw
