// The layers of sequences, skips and losses per position: the cuda kernels in every precision against the reference
// kernels. Like test_cuda_layers.cpp they run on a GPU and on the host stand-in of the toolkit.
#include "exec/cuda/backend.h"
#include "exec/cuda/cuda_kernels.h"
#include "exec/cuda/step_graph.h"
#include "tests/support/cuda_precisions.h"
#include "tests/support/layer_laws.h"
#include "tests/support/sequence_cases.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <utility>

namespace pw {
namespace {

using cuda::CudaKernels;

constexpr unsigned kSeed = 5;

LayerCase image(const std::string& name, LayerKind kind, Dims input, int outputs, int stride, int samples) {
    return {
        fmt::format("{}{}x{}x{}to{}s{}b{}", name, input.channels, input.height, input.width, outputs, stride, samples),
        make_layer(kind, input, outputs, 1, stride), samples};
}

LayerCase concat(Dims input, int outputs) { return image("Concat", LayerKind::Concat, input, outputs, 1, 3); }
LayerCase upsample(Dims input, int stride) {
    return image("Upsample", LayerKind::Upsample, input, input.channels, stride, 2);
}
LayerCase dropout(Dims input, double probability, int samples) {
    LayerCase tested = image("Dropout", LayerKind::Dropout, input, input.channels, 1, samples);
    tested.layer.probability = probability;
    return tested;
}
LayerCase cross_entropy(Dims input, int samples) {
    return image("CrossEntropy", LayerKind::CrossEntropy, input, 1, 1, samples);
}
LayerCase squares(Dims input, int samples) {
    return image("MeanSquaredError", LayerKind::MeanSquaredError, input, 1, 1, samples);
}

LayerCase norm(int length, int width, int samples) {
    return simple("LayerNorm", LayerKind::LayerNorm, length, width, samples);
}
LayerCase gelu(int length, int width, int samples) { return simple("Gelu", LayerKind::Gelu, length, width, samples); }
LayerCase positions(int length, int width, int samples) {
    return simple("PositionBias", LayerKind::PositionBias, length, width, samples);
}
LayerCase rms_norm(int length, int width, int samples) {
    return simple("RmsNorm", LayerKind::RmsNorm, length, width, samples);
}
LayerCase gated_silu(int length, int width, int samples) {
    return simple("GatedSilu", LayerKind::GatedSilu, length, width, samples);
}

// Widths of whole packs and others; rows in one share and in many; parts of a row; vocabularies larger than the
// integers of bf16; heads that share keys by one, two, four and all of them, more of them than rows.
std::vector<LayerCase> model_layers() {
    return {concat({3, 5, 4}, 8),
            concat({16, 3, 5}, 40),
            concat({8, 4, 4}, 20),
            upsample({3, 4, 5}, 2),
            upsample({16, 3, 3}, 2),
            upsample({8, 5, 2}, 3),
            dropout({3, 5, 7}, 0.5, 3),
            dropout({16, 4, 4}, 0.25, 2),
            dropout({1, 9, 13}, 0.1, 2),
            cross_entropy({5, 4, 6}, 2),
            cross_entropy({2, 20, 17}, 3),
            cross_entropy({1, 9, 300}, 2),
            squares({10, 1, 1}, 7),
            squares({3, 4, 5}, 2),
            squares({2, 50, 47}, 3),
            squares({1, 6, 11}, 2),
            norm(4, 7, 2),
            norm(9, 64, 3),
            norm(70, 40, 2),
            gelu(3, 5, 2),
            gelu(8, 32, 3),
            positions(5, 6, 3),
            positions(7, 32, 2),
            embedding(6, 7, 5, 3),
            embedding(20, 1000, 8, 4),
            embedding(333, 40, 5, 2),
            row_linear(4, 5, 7, 2, true),
            row_linear(50, 16, 24, 2, true),
            row_linear(4, 5, 7, 2, false),
            attention(5, 6, 1, 1),
            attention(9, 12, 3, 2),
            attention(1, 4, 2, 2),
            attention(40, 32, 4, 2),
            grouped_attention(5, 6, 3, 3, 2),
            grouped_attention(9, 20, 2, 1, 2),
            grouped_attention(7, 24, 4, 2, 3),
            grouped_attention(33, 32, 8, 2, 2),
            grouped_attention(1, 48, 6, 3, 2),
            grouped_attention(11, 28, 7, 1, 1),
            rotary(5, 6, 3, 2),
            rotary(300, 16, 2, 2, 500'000),
            rotary(7, 30, 1, 3, 10),
            rms_norm(4, 7, 2),
            rms_norm(9, 64, 3),
            rms_norm(70, 40, 2),
            gated_silu(3, 5, 2),
            gated_silu(8, 32, 3)};
}

bool is_product(LayerKind kind) {
    return kind == LayerKind::RowLinear || kind == LayerKind::Attention || kind == LayerKind::GroupedAttention;
}

class CudaModels : public testing::TestWithParam<std::tuple<LayerCase, Precision>> {
protected:
    void SetUp() override {
        if (cuda_status() != "ready")
            GTEST_SKIP() << cuda_status();
    }
    static void TearDownTestSuite() { opened().close(); }

    static Precision precision() { return std::get<Precision>(GetParam()); }
    static const LayerCase& tested_case() { return std::get<LayerCase>(GetParam()); }

    static const CudaKernels& kernels() { return opened().of(precision()); }

    static std::vector<float> inputs_of(const LayerRig& rig) {
        const std::int64_t count = rig.samples * rig.layer.input.elements();
        if (rig.layer.kind != LayerKind::Embedding)
            return random_for(precision(), count, kSeed);
        std::vector<float> tokens = random_values(count, kSeed);
        for (float& token : tokens)
            token = std::floor(std::abs(token) * static_cast<float>(rig.layer.vocabulary));
        return tokens;
    }

    static LayerRig rig(const Kernels& of) {
        LayerRig made(of, tested_case().layer, tested_case().samples);
        fill(made, precision(), kSeed);
        if (made.layer.kind == LayerKind::Embedding) {  // token numbers have no gradient
            made.kernel->fill_input(inputs_of(made), made.inputs[0].get());
            made.kernel->fill_input(std::vector<float>(inputs_of(made).size()), made.input_gradients[0].get());
        }
        return made;
    }

    static double tolerance() {
        if (precision() == Precision::Bf16)
            return 1e-2;
        return is_product(tested_case().layer.kind) && precision() == Precision::Tf32 ? 1e-3 : 1e-5;
    }

private:
    static KernelsByPrecision& opened() {
        static KernelsByPrecision all;
        return all;
    }
};

TEST_P(CudaModels, ComputeWhatTheReferenceDoes) {
    compute_what_the_reference_does(rig(kernels()), rig(reference_kernels()), tolerance());
}

TEST_P(CudaModels, AddUpWeightGradients) { add_up_weight_gradients(rig(kernels()), tolerance()); }

TEST_P(CudaModels, EvaluateWithoutSaving) {
    LayerRig tested = rig(kernels()), expected = rig(reference_kernels());
    for (LayerRig* each : {&tested, &expected}) {
        LayerArgs args = each->args();
        args.saved = args.kept = nullptr;
        each->kernel->forward(args, false);
    }
    EXPECT_NEAR(tested.loss(), expected.loss(), 1e-6 * std::abs(expected.loss()));
    expect_close(tested.plain_output(), expected.plain_output(), tolerance(), "output");
}

TEST_P(CudaModels, SkipUnneededInputGradients) {
    LayerRig tested = rig(kernels()), full = rig(kernels());
    for (LayerRig* each : {&tested, &full})
        each->forward();
    full.backward();
    for (std::size_t wanted = 0; wanted <= tested.inputs.size(); ++wanted) {
        std::vector<std::byte*> gradients(tested.inputs.size(), nullptr);
        if (wanted < gradients.size())
            gradients[wanted] = tested.input_gradients[wanted].get();
        LayerArgs args = tested.args();
        args.input_gradients = gradients;
        tested.kernel->backward_input(args);
        tested.kernel->backward_weight(args);
        EXPECT_EQ(tested.parameter_gradients(), full.parameter_gradients());
        if (wanted < gradients.size()) {
            EXPECT_EQ(tested.plain_input_gradient(wanted), full.plain_input_gradient(wanted));
        }
    }
}

TEST_P(CudaModels, RoundTripExactly) {
    const LayerRig tested = rig(kernels());
    round_trip_exactly(tested, rig(reference_kernels()), inputs_of(tested),
                       random_for(precision(), tested.output_elements(), 4));
}

TEST_P(CudaModels, HaveAlignedSizes) { have_aligned_sizes(rig(kernels()).sizes); }

TEST_P(CudaModels, RepeatTheirBits) { repeat_their_bits(rig(kernels()), rig(kernels())); }

// Sums and updates use whole blocks.
TEST_P(CudaModels, HaveZerosAfterTheParameters) {
    LayerRig tested = rig(kernels());
    if (tested.sizes.weights == 0)
        return;
    const auto sum = kernels().shared(sizeof(double));
    tested.forward();
    for (const bool accumulate : {false, true}) {
        tested.backward(accumulate);
        for (const auto& [block, parts] : {std::pair(&tested.weights, tested.parameters()),
                                           std::pair(&tested.weight_gradient, tested.parameter_gradients())}) {
            kernels().sum_of_squares(block->get(), block->size(), reinterpret_cast<double*>(sum->data()));
            kernels().finish();
            double expected = 0;
            for (const auto& values : parts)
                for (const float value : values)
                    expected += double{value} * double{value};
            EXPECT_NEAR(*reinterpret_cast<const double*>(sum->data()) / expected, 1, 1e-5);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaModels,
                         testing::Combine(testing::ValuesIn(model_layers()),
                                          testing::Values(Precision::Fp32, Precision::Tf32, Precision::Bf16)),
                         [](const testing::TestParamInfo<std::tuple<LayerCase, Precision>>& tested) {
                             return std::get<LayerCase>(tested.param).name +
                                    case_title(std::get<Precision>(tested.param));
                         });

class CudaBackend : public testing::TestWithParam<Precision> {
protected:
    void SetUp() override {
        if (cuda_status() != "ready")
            GTEST_SKIP() << cuda_status();
    }
};

class CudaTokens : public CudaBackend {};

// The gradients of both blocks are summed block by block.
TEST_P(CudaTokens, ShareATableWithOneLayoutInBothBlocks) {
    const CudaKernels kernels({}, GetParam(), true);
    const LayerCase table = embedding(4, 37, 5, 2), product = row_linear(4, 5, 37, 2, false);
    LayerRig owner(kernels, table.layer, table.samples), reader(kernels, product.layer, product.samples);
    ASSERT_EQ(owner.sizes.weights, reader.sizes.weights);
    const std::vector<float> values = random_for(GetParam(), 37 * 5, 3);
    owner.kernel->load({values}, owner.weights.get(), nullptr);
    EXPECT_EQ(reader.kernel->store(owner.weights.get(), nullptr), std::vector<std::vector<float>>{values});
    reader.kernel->load({values}, reader.weights.get(), nullptr);
    const auto bytes_of = [&](const Block& block) {
        const auto copy = kernels.shared(block.size());
        kernels.copy(block.get(), copy->data(), block.size());
        kernels.finish();
        return std::vector<std::byte>(copy->data(), copy->data() + block.size());
    };
    EXPECT_EQ(bytes_of(owner.weights), bytes_of(reader.weights));
}

// bf16 has no integer between 256 and 258.
TEST_P(CudaTokens, ArriveExactly) {
    constexpr int kLength = 12, kSamples = 3;
    const CudaKernels kernels({}, GetParam(), true);
    const Dataset data = Dataset::synthetic_text(kLength, 1000, 3);
    const LayerCase reader = embedding(kLength, 1000, 8, kSamples);
    const LayerRig rig(kernels, reader.layer, kSamples, true);
    const auto notes = kernels.shared(kSamples * sizeof(Sample));
    const std::span<Sample> samples(reinterpret_cast<Sample*>(notes->data()), kSamples);
    std::vector<float> expected(kSamples * kLength);
    for (std::size_t n = 0; n < kSamples; ++n) {
        samples[n] = data.sample(static_cast<std::int64_t>(n) + 7);
        data.read_at(samples[n], std::span(expected).subspan(n * kLength, kLength));
    }
    kernels.take_data(data);
    kernels.load_data(data, samples, rig.inputs[0].get());
    EXPECT_EQ(rig.kernel->read_input(rig.inputs[0].get()), expected);
    EXPECT_GT(*std::ranges::max_element(expected), 256);
}

// Rows are sorted, not searched: the batch of a GPT has tens of thousands of rows, and some tokens are in very many
// of them.
TEST_P(CudaTokens, HaveTheirGradientsInLargeBatches) {
    const CudaKernels kernels({}, GetParam(), true);
    const LayerCase many = embedding(1 << 14, 300, 3, 3);
    LayerRig tested(kernels, many.layer, many.samples, true),
        expected(reference_kernels(), many.layer, many.samples, true);
    std::vector<float> tokens = random_values(tested.input_elements(0), 9, 17);
    std::ranges::transform(tokens, tokens.begin(),
                           [](float value) { return std::floor(value * value); });  // most are few
    for (LayerRig* each : {&tested, &expected}) {
        fill(*each, GetParam(), kSeed);
        each->kernel->fill_input(tokens, each->inputs[0].get());
        each->backward();
    }
    EXPECT_LE(relative_error(tested.parameter_gradients()[0], expected.parameter_gradients()[0]), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Precisions, CudaTokens, testing::Values(Precision::Fp32, Precision::Tf32, Precision::Bf16),
                         [](const auto& tested) { return case_title(tested.param); });

class CudaHeads : public CudaBackend {};

// With one row the gradient of the values is the sum of the output gradients of all heads. In bf16 256 + 1 is 256.
TEST_P(CudaHeads, RoundSumsOfSharedGradientsOnce) {
    const CudaKernels kernels({}, GetParam(), true);
    const LayerCase tested = grouped_attention(1, 16, 8, 1, 1);
    LayerRig rig(kernels, tested.layer, tested.samples);
    fill(rig, GetParam(), kSeed);
    std::vector<float> gradient(16, 1);
    gradient[0] = gradient[1] = 256;
    rig.fill_gradient(gradient);
    rig.forward();
    rig.backward();
    EXPECT_EQ(rig.plain_input_gradient(2), std::vector<float>(2, GetParam() == Precision::Bf16 ? 264 : 263));
}

INSTANTIATE_TEST_SUITE_P(Precisions, CudaHeads, testing::Values(Precision::Fp32, Precision::Tf32, Precision::Bf16),
                         [](const auto& tested) { return case_title(tested.param); });

class CudaCaptures : public CudaBackend {};

// A launch drops the same values as the same calls in that later step.
TEST_P(CudaCaptures, DropOtherValuesInEveryLaunch) {
    const CudaKernels kernels({}, GetParam(), true);
    const LayerCase tested = dropout({4, 5, 6}, 0.5, 3);
    LayerRig captured(kernels, tested.layer, tested.samples), expected(reference_kernels(), tested.layer, 3);
    for (LayerRig* each : {&captured, &expected})
        fill(*each, GetParam(), kSeed);
    cuda::StepGraph graph({kernels.device().stream()});
    graph.begin();
    captured.forward();
    captured.backward();
    graph.end();
    std::vector<float> before;
    for (const std::int64_t later : {0, 6, 12}) {
        kernels.device().later()->samples = later;
        graph.launch();
        LayerArgs args = expected.args();
        args.seed += static_cast<std::uint64_t>(later);
        expected.kernel->forward(args, true);
        expected.backward();
        EXPECT_EQ(captured.plain_output(), expected.plain_output()) << later;
        EXPECT_EQ(captured.plain_input_gradient(0), expected.plain_input_gradient(0)) << later;
        EXPECT_NE(captured.plain_output(), std::exchange(before, expected.plain_output())) << later;
    }
}

INSTANTIATE_TEST_SUITE_P(Precisions, CudaCaptures, testing::Values(Precision::Fp32, Precision::Tf32, Precision::Bf16),
                         [](const auto& tested) { return case_title(tested.param); });

}  // namespace
}  // namespace pw
