// The cuda kernels in every precision against the reference kernels, layer by layer. The same tests run on a GPU,
// and on the host stand-in of the toolkit.
#include "exec/cuda/backend.h"
#include "exec/cuda/cuda_kernels.h"
#include "exec/cuda/layers/layers.h"
#include "tests/support/cuda_precisions.h"
#include "tests/support/layer_laws.h"
#include "tests/support/refusal.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <vector>

namespace pw {
namespace {

using cuda::CudaKernels;

#ifdef PIPEWRIGHT_ON_HOST
constexpr bool kOnHost = true;
#else
constexpr bool kOnHost = false;
#endif

struct Case {
    std::string name;
    Layer layer;
    int samples;
};

Case shaped(const std::string& kind_name, LayerKind kind, Dims input, bool relu = false, int samples = 3) {
    return {fmt::format("{}{}{}x{}x{}b{}", kind_name, relu ? "Relu" : "", input.channels, input.height, input.width,
                        samples),
            make_layer(kind, input, input.channels, 1, 1, 0, relu), samples};
}

Case convolution(Dims input, int outputs, int kernel, int stride, int padding, int samples = 2) {
    return {fmt::format("Convolution{}x{}x{}to{}k{}s{}p{}", input.channels, input.height, input.width, outputs, kernel,
                        stride, padding),
            make_layer(LayerKind::Convolution, input, outputs, kernel, stride, padding), samples};
}

Case linear(Dims input, int outputs, int samples) {
    return {fmt::format("Linear{}x{}x{}to{}b{}", input.channels, input.height, input.width, outputs, samples),
            make_layer(LayerKind::Linear, input, outputs), samples};
}

Case norm(Dims input, bool relu, int samples = 3) {
    return shaped("BatchNorm", LayerKind::BatchNorm, input, relu, samples);
}

Case add(Dims input, bool relu) { return shaped("Add", LayerKind::Add, input, relu); }

Case pool(Dims input, int kernel, int stride, int padding) {
    return {fmt::format("MaxPool{}x{}x{}k{}s{}p{}", input.channels, input.height, input.width, kernel, stride, padding),
            make_layer(LayerKind::MaxPool, input, input.channels, kernel, stride, padding), 2};
}

// Packs of 1, 4 and 8 channels; few and many shares of sums; sizes that fill no whole pack, line or block of
// threads.
std::vector<Case> all_cases() {
    return {norm({64, 32, 32}, true),
            norm({64, 16, 16}, true, 1),
            norm({256, 16, 16}, false),
            norm({512, 8, 8}, true, 2),
            norm({2048, 2, 2}, false),
            norm({5, 4, 3}, true),
            norm({5, 31, 9}, false),
            norm({12, 7, 5}, true),
            norm({16, 1, 1}, false),
            norm({8, 1, 1}, true, 9),
            norm({8, 64, 65}, true, 2),
            norm({1, 40, 40}, false),
            shaped("Relu", LayerKind::Relu, {7, 3, 5}),
            shaped("Relu", LayerKind::Relu, {512, 1, 1}),
            shaped("Relu", LayerKind::Relu, {24, 30, 31}),
            add({3, 5, 7}, false),
            add({3, 5, 7}, true),
            add({32, 4, 4}, false),
            add({256, 16, 16}, true),
            pool({64, 32, 32}, 3, 2, 1),
            pool({3, 8, 9}, 3, 2, 1),
            pool({16, 6, 6}, 2, 2, 0),
            pool({12, 7, 9}, 2, 2, 0),
            pool({16, 7, 6}, 3, 1, 1),
            pool({8, 9, 9}, 2, 3, 0),
            pool({4, 11, 13}, 5, 3, 2),
            pool({20, 16, 17}, 16, 1, 7),
            Case{"AveragePool5", make_layer(LayerKind::AveragePool, {5, 3, 4}, 5), 3},
            Case{"AveragePool12", make_layer(LayerKind::AveragePool, {12, 1, 1}, 12), 2},
            Case{"AveragePool2048", make_layer(LayerKind::AveragePool, {2048, 7, 7}, 2048), 3},
            Case{"CrossEntropy1000", make_layer(LayerKind::CrossEntropy, {1000, 1, 1}, 1), 4},
            Case{"CrossEntropy10", make_layer(LayerKind::CrossEntropy, {10, 1, 1}, 1), 19},
            Case{"CrossEntropy37", make_layer(LayerKind::CrossEntropy, {37, 1, 1}, 1), 300},
            convolution({16, 9, 7}, 24, 1, 1, 0),
            convolution({64, 8, 8}, 32, 1, 2, 0),
            convolution({8, 10, 11}, 12, 3, 2, 1),
            convolution({64, 6, 6}, 64, 3, 1, 1, 3),
            convolution({3, 32, 30}, 16, 7, 2, 3),
            convolution({5, 7, 9}, 3, 3, 1, 1, 1),
            convolution({1, 5, 5}, 1, 3, 2, 0, 1),
            linear({64, 1, 1}, 32, 4),
            linear({37, 1, 1}, 5, 3),
            linear({512, 1, 1}, 1000, 2),
            linear({6, 3, 5}, 7, 4),
            linear({1, 28, 28}, 10, 1)};
}

class CudaLayers : public testing::TestWithParam<std::tuple<Case, Precision>> {
protected:
    static constexpr unsigned kSeed = 5;

    void SetUp() override {
        if (cuda_status() != "ready")
            GTEST_SKIP() << cuda_status();
    }
    static void TearDownTestSuite() { opened().close(); }

    static Precision precision() { return std::get<Precision>(GetParam()); }

    static const CudaKernels& kernels() { return opened().of(precision()); }

    LayerRig rig(const Kernels& of) const {
        const auto& [name, layer, samples] = std::get<Case>(GetParam());
        LayerRig made(of, layer, samples);
        fill(made, precision(), kSeed);
        const std::int64_t count = layer.kind == LayerKind::CrossEntropy ? 0 : samples * layer.output.elements();
        made.fill_gradient(safe_gradient(random_for(precision(), count, kSeed + 30), layer, samples,
                                         [](LayerRig& plain) { fill(plain, precision(), kSeed); }));
        return made;
    }

    static double tolerance() { return tolerance_of(std::get<Case>(GetParam()).layer, precision()); }

    static std::vector<std::byte> copy_of(const Block& block) {
        const auto copy = kernels().shared(block.size());
        kernels().copy(block.get(), copy->data(), block.size());
        kernels().finish();
        return {copy->data(), copy->data() + block.size()};
    }

    // Over the whole block, including the part after the parameters.
    static double sum_of_block(const Block& block) {
        const auto sum = kernels().shared(sizeof(double));
        kernels().sum_of_squares(block.get(), block.size(), reinterpret_cast<double*>(sum->data()));
        kernels().finish();
        return *reinterpret_cast<const double*>(sum->data());
    }

private:
    static KernelsByPrecision& opened() {
        static KernelsByPrecision all;
        return all;
    }
};

TEST_P(CudaLayers, ComputeWhatTheReferenceDoes) {
    compute_what_the_reference_does(rig(kernels()), rig(reference_kernels()), tolerance());
}

TEST_P(CudaLayers, AddUpWeightGradients) { add_up_weight_gradients(rig(kernels()), tolerance()); }

TEST_P(CudaLayers, KeepNaN) {
    LayerRig tested = rig(kernels());
    if (tested.layer.kind != LayerKind::Embedding)  // its inputs are tokens
        keep_nan(std::move(tested));
}

TEST_P(CudaLayers, PropagateNaNInTheBackwardOfAReLU) {
    LayerRig tested = rig(kernels());
    if (tested.layer.kind == LayerKind::Relu || tested.layer.relu)
        pass_nan_back(std::move(tested));
}

TEST_P(CudaLayers, WriteNothingElseWithoutSaving) {
    LayerRig saving = rig(kernels()), tested = rig(kernels());
    const auto parameters = tested.parameters();
    saving.forward(true);
    const auto saved = copy_of(tested.saved);
    tested.forward(false);
    EXPECT_EQ(copy_of(tested.saved), saved);
    EXPECT_EQ(tested.parameters(), parameters);
    if (tested.layer.kind == LayerKind::BatchNorm)  // its evaluation uses other moments
        return;
    EXPECT_EQ(tested.plain_output(), saving.plain_output());
    EXPECT_EQ(tested.loss(), saving.loss());
    LayerArgs args = tested.args();
    args.saved = args.kept = nullptr;
    tested.kernel->forward(args, false);
    EXPECT_EQ(tested.plain_output(), saving.plain_output());
}

TEST_P(CudaLayers, EvaluateAsTheReferenceDoes) {
    evaluate_as_the_reference_does(rig(kernels()), rig(reference_kernels()), tolerance());
}

TEST_P(CudaLayers, SkipUnneededInputGradients) {
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
        if (wanted < gradients.size()) {
            EXPECT_EQ(tested.plain_input_gradient(wanted), full.plain_input_gradient(wanted));
        }
        EXPECT_EQ(tested.parameter_gradients(), full.parameter_gradients());
    }
}

TEST_P(CudaLayers, RoundTripExactly) {
    const LayerRig tested = rig(kernels());
    round_trip_exactly(tested, rig(reference_kernels()),
                       random_for(precision(), tested.samples * tested.layer.input.elements(), 3),
                       random_for(precision(), tested.output_elements(), 4));
}

TEST_P(CudaLayers, HaveAlignedSizes) { have_aligned_sizes(rig(kernels()).sizes); }

TEST_P(CudaLayers, RepeatTheirBits) { repeat_their_bits(rig(kernels()), rig(kernels())); }

// Layers with parameters.
class CudaBlocks : public CudaLayers {};

// Sums and updates use whole blocks, which may contain only the parameters and zeros.
TEST_P(CudaBlocks, HaveZerosAfterTheParameters) {
    LayerRig tested = rig(kernels());
    tested.forward();
    tested.backward();
    auto parameters = tested.parameters();
    parameters.resize(tested.parameter_gradients().size());
    EXPECT_NEAR(sum_of_block(tested.weights) / squares_of(parameters), 1, 1e-5);
    EXPECT_NEAR(sum_of_block(tested.weight_gradient) / squares_of(tested.parameter_gradients()), 1, 1e-5);
    tested.backward(true);
    EXPECT_NEAR(sum_of_block(tested.weight_gradient) / squares_of(tested.parameter_gradients()), 1, 1e-5);
}

class CudaNorms : public CudaLayers {};

// Two values, a step of bf16 apart, whose mean is a thousand times their deviation.
TEST_P(CudaNorms, KeepTheVarianceFarFromZero) {
    LayerRig tested = rig(kernels()), expected = rig(reference_kernels_double());
    auto values = random_values(tested.samples * tested.layer.input.elements(), 2);
    std::ranges::transform(values, values.begin(), [](float v) { return v < -0.9f ? 1004.0f : 1000.0f; });
    for (LayerRig* each : {&tested, &expected}) {
        each->kernel->fill_input(values, each->inputs[0].get());
        each->forward();
    }
    // The rounding error of the mean is 3e-5 of the deviation.
    EXPECT_LE(relative_error(tested.plain_output(), expected.plain_output()),
              precision() == Precision::Bf16 ? 1e-2 : 2e-4);
    expect_close(tested.parameters(), expected.parameters(), tolerance(), "parameter");
}

// Every pass computes the ReLU's mask from these values: they must not depend on the operations that a compiler
// fuses.
TEST_P(CudaNorms, RoundScaleAndShiftOnce) {
    LayerRig tested = rig(kernels());
    tested.forward(false);
    const auto parameters = tested.parameters();
    const std::vector<float>&gamma = parameters[0], &beta = parameters[1], &mean = parameters[2],
          &variance = parameters[3];
    std::vector<float> expected = tested.kernel->read_input(tested.inputs[0].get());
    const auto pixels = static_cast<std::size_t>(tested.layer.input.height * tested.layer.input.width);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const std::size_t c = i / pixels % gamma.size();
        const auto scale = static_cast<float>(1 / std::sqrt(double{variance[c]} + 1e-5) * double{gamma[c]});
        const float value = std::fma(expected[i] - mean[c], scale, beta[c]);
        expected[i] = tested.layer.relu && value <= 0 ? 0 : value;
        if (precision() == Precision::Bf16)
            expected[i] = kept_by_bf16(expected[i]);
    }
    EXPECT_EQ(tested.plain_output(), expected);
}

TEST_P(CudaNorms, AverageAsTheReferenceDoes) {
    LayerRig tested = rig(kernels());
    const std::int64_t count = tested.samples * tested.layer.input.elements();
    average_as_the_reference_does(
        kernels(), std::move(tested), rig(reference_kernels()),
        {random_for(precision(), count, 1), random_for(precision(), count, 2), random_for(precision(), count, 3)},
        1e-5);
}

std::vector<Case> cases_that(bool (*fit)(const Case&)) {
    std::vector<Case> cases = all_cases();
    std::erase_if(cases, [&](const Case& tested) { return !fit(tested); });
    return cases;
}

// On the stand-in each case has one of the precisions, and all of them with PIPEWRIGHT_SOAK=1.
auto in_all_precisions(const std::vector<Case>& cases) {
    constexpr std::array kPrecisions = {Precision::Fp32, Precision::Tf32, Precision::Bf16};
    std::vector<std::tuple<Case, Precision>> all;
    for (std::size_t tested = 0; tested < cases.size(); ++tested)
        for (std::size_t precision = 0; precision < kPrecisions.size(); ++precision)
            if (!kOnHost || soaks() || (tested + precision) % kPrecisions.size() == 0)
                all.emplace_back(cases[tested], kPrecisions[precision]);
    return testing::ValuesIn(all);
}

std::string case_name(const testing::TestParamInfo<std::tuple<Case, Precision>>& tested) {
    return std::get<Case>(tested.param).name + case_title(std::get<Precision>(tested.param));
}

bool has_parameters(const Case& tested) { return !parameters_of(tested.layer).empty(); }
bool averages_many(const Case& tested) {
    const Layer& layer = tested.layer;
    return layer.kind == LayerKind::BatchNorm && tested.samples * layer.input.height * layer.input.width >= 100;
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaLayers, in_all_precisions(all_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(Shapes, CudaBlocks, in_all_precisions(cases_that(has_parameters)), case_name);
INSTANTIATE_TEST_SUITE_P(Shapes, CudaNorms, in_all_precisions(cases_that(averages_many)), case_name);

// Own kernels number items in 32 bits. The test reserves no memory of that size.
TEST(CudaItems, AreRefusedIfTooMany) {
    if (cuda_status() != "ready")
        GTEST_SKIP() << cuda_status();
    const CudaKernels kernels({}, Precision::Bf16, true);
    const auto refused = [&](LayerKind kind, Dims input, int samples) {
        Layer layer = make_layer(kind, input, input.channels, 2, 1, 0);
        layer.name = "large";
        return refusal([&] { (void)kernels.make(layer, samples, false); });
    };
    for (const LayerKind kind : {LayerKind::BatchNorm, LayerKind::MaxPool, LayerKind::AveragePool}) {
        const std::string message = refused(kind, {64, 128, 128}, 1 << 14);  // packs of eight channels
        expect_says(message,
                    {"layer 'large': 16384 samples have 2147483648 items", "smaller pipeline.micro_batch_size"});
        EXPECT_TRUE(kernels.make(make_layer(kind, {64, 128, 128}, 64, 2, 1, 0), (1 << 14) - 1, false));
    }
    expect_says(refused(LayerKind::BatchNorm, {3, 256, 256}, 1 << 14),
                {"layer 'large': 16384 samples have 3221225472 items"});
    expect_says(refused(LayerKind::CrossEntropy, {1 << 15, 1, 1}, 1 << 16), {"have 2147483648 items"});
}

TEST(CudaMaxPool, RefusesWindowsThatAByteCannotNumber) {
    if (cuda_status() != "ready")
        GTEST_SKIP() << cuda_status();
    const CudaKernels kernels({}, Precision::Fp32, true);
    Layer layer = make_layer(LayerKind::MaxPool, {4, 20, 20}, 4, 17, 1, 0);
    layer.name = "wide";
    expect_says(refusal([&] { (void)kernels.make(layer, 1, false); }),
                {"layer 'wide': ", "17 rows", "run.backend: cpu"});
}

// The first of two equal maxima gets the gradient.
TEST(CudaMaxPool, TakesTheFirstOfEqualMaxima) {
    if (cuda_status() != "ready")
        GTEST_SKIP() << cuda_status();
    const CudaKernels kernels({}, Precision::Fp32, true);
    LayerRig rig(kernels, make_layer(LayerKind::MaxPool, {1, 2, 2}, 1, 2, 2, 0), 1);
    rig.kernel->fill_input({1, 2, 2, 2}, rig.inputs[0].get());
    rig.fill_gradient({5});
    rig.forward();
    rig.backward();
    EXPECT_EQ(rig.plain_output(), std::vector<float>{2});
    EXPECT_EQ(rig.plain_input_gradient(0), (std::vector<float>{0, 5, 0, 0}));
}

}  // namespace
}  // namespace pw
