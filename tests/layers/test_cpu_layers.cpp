// The cpu kernels against the reference kernels, layer by layer.
#include "exec/cpu/layers.h"
#include "tests/support/layer_case.h"
#include "tests/support/layer_laws.h"
#include "tests/support/thoroughness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace pw {
namespace {

LayerCase convolution(Dims input, int outputs, int kernel, int stride, int samples = 2) {
    const int padding = kernel / 2;
    return {fmt::format("Convolution{}x{}x{}to{}k{}s{}b{}", input.channels, input.height, input.width, outputs, kernel,
                        stride, samples),
            make_layer(LayerKind::Convolution, input, outputs, kernel, stride, padding), samples};
}

LayerCase shaped(const std::string& kind_name, LayerKind kind, Dims input, bool relu = false, int samples = 3) {
    return {fmt::format("{}{}{}x{}x{}b{}", kind_name, relu ? "Relu" : "", input.channels, input.height, input.width,
                        samples),
            make_layer(kind, input, input.channels, 1, 1, 0, relu), samples};
}

LayerCase pool(Dims input, int kernel, int stride, int padding) {
    return {fmt::format("MaxPool{}x{}x{}k{}s{}", input.channels, input.height, input.width, kernel, stride),
            make_layer(LayerKind::MaxPool, input, input.channels, kernel, stride, padding), 2};
}

LayerCase linear(Dims input, int outputs, int samples) {
    return {fmt::format("Linear{}x{}x{}to{}b{}", input.channels, input.height, input.width, outputs, samples),
            make_layer(LayerKind::Linear, input, outputs), samples};
}

void add_unique(std::vector<LayerCase>& cases, const LayerCase& added) {
    if (std::ranges::none_of(cases, [&](const LayerCase& other) { return other.name == added.name; }))
        cases.push_back(added);
}

// Every layer shape of ResNet-50 at an image of `size` pixels.
void add_resnet50(std::vector<LayerCase>& cases, int size) {
    const int stem = size / 2;
    int pixels = stem / 2, channels = 64;
    add_unique(cases, convolution({3, size / 2, size / 2}, 64, 7,
                                  2));  // a quarter of the pixels, since this is the most expensive layer
    add_unique(cases, shaped("BatchNorm", LayerKind::BatchNorm, {64, stem, stem}, true));
    add_unique(cases, pool({64, stem, stem}, 3, 2, 1));
    for (int stage = 0; stage < 4; ++stage) {
        const int width = 64 << stage, outputs = 4 * width;
        for (int block = 0; block < 2; ++block) {  // later blocks repeat the second one
            const int stride = block == 0 && stage > 0 ? 2 : 1;
            const Dims input{channels, pixels, pixels}, middle{width, pixels, pixels};
            const Dims strided{width, pixels / stride, pixels / stride}, output{outputs, strided.height, strided.width};
            add_unique(cases, convolution(input, width, 1, 1));
            add_unique(cases, convolution(middle, width, 3, stride));
            add_unique(cases, convolution(strided, outputs, 1, 1));
            if (block == 0)
                add_unique(cases, convolution(input, outputs, 1, stride));
            add_unique(cases, shaped("BatchNorm", LayerKind::BatchNorm, middle, true));
            add_unique(cases, shaped("BatchNorm", LayerKind::BatchNorm, output));
            add_unique(cases, shaped("Add", LayerKind::Add, output, true));
            pixels /= stride;
            channels = outputs;
        }
    }
    add_unique(cases, shaped("AveragePool", LayerKind::AveragePool, {2048, pixels, pixels}));
    cases.back().layer.output = {2048, 1, 1};
}

// Own loops run with blocks of both widths on every machine. Numbers of pixels: odd, even, more than a chunk.
void add_block_widths(std::vector<LayerCase>& cases) {
    for (const int per_block : {8, 16})
        for (const int channels : {8, 16, 24, 64})
            for (const Dims& input : {Dims{channels, 1, 1}, Dims{channels, 5, 3}, Dims{channels, 6, 3},
                                      Dims{channels, 23, 17}, Dims{channels, 113, 57}}) {
                LayerCase average = shaped("AveragePool", LayerKind::AveragePool, input);
                average.layer.output = {channels, 1, 1};
                for (LayerCase tested : {average, shaped("BatchNorm", LayerKind::BatchNorm, input),
                                         shaped("BatchNorm", LayerKind::BatchNorm, input, true)}) {
                    tested.name += fmt::format("Of{}", per_block);
                    tested.per_block = per_block;
                    cases.push_back(tested);
                }
            }
}

LayerCase loss(LayerKind kind, Dims input, int per_block) {
    return {fmt::format("{}{}x{}x{}Of{}", kind == LayerKind::CrossEntropy ? "CrossEntropy" : "MeanSquaredError",
                        input.channels, input.height, input.width, per_block),
            make_layer(kind, input, 1), 3, per_block};
}

// Classes that fill whole blocks and classes that do not, along channels and along rows.
void add_losses(std::vector<LayerCase>& cases) {
    for (const LayerKind kind : {LayerKind::CrossEntropy, LayerKind::MeanSquaredError})
        for (const int per_block : {8, 16})
            for (const Dims& input : {Dims{1000, 1, 1}, Dims{3, 5, 7}, Dims{8, 5, 7}, Dims{32, 3, 4}, Dims{1, 6, 16}})
                cases.push_back(loss(kind, input, per_block));
}

// Two tensors that fill whole blocks or not, joined into one that does or does not.
void add_concats(std::vector<LayerCase>& cases) {
    for (const int per_block : {8, 16})
        for (const auto& [first, second] : {std::pair{16, 16},
                                            {16, 32},
                                            {8, 8},
                                            {8, 16},
                                            {16, 8},
                                            {4, 4},
                                            {4, 12},
                                            {12, 4},
                                            {16, 5},
                                            {5, 16},
                                            {3, 2}})
            cases.push_back({fmt::format("Concat{}and{}Of{}", first, second, per_block),
                             make_layer(LayerKind::Concat, {first, 5, 3}, first + second), 3, per_block});
}

void add_upsamples(std::vector<LayerCase>& cases) {
    for (const int per_block : {8, 16})
        for (const int channels : {5, 16, 24})
            for (const int times : {2, 3})
                cases.push_back({fmt::format("Upsample{}k{}Of{}", channels, times, per_block),
                                 make_layer(LayerKind::Upsample, {channels, 3, 5}, channels, 1, times), 3, per_block});
}

std::vector<LayerCase> all_cases() {
    std::vector<LayerCase> cases;
    add_resnet50(cases, soaks() ? 64 : 32);
    add_block_widths(cases);
    add_losses(cases);
    add_concats(cases);
    add_upsamples(cases);
    for (const LayerCase& added : {convolution({20, 6, 5}, 12, 3, 1),
                                   convolution({16, 6, 5}, 10, 3, 2),
                                   convolution({5, 7, 7}, 32, 1, 1),
                                   convolution({32, 1, 1}, 48, 3, 1, 4),
                                   convolution({64, 1, 1}, 64, 1, 2),
                                   convolution({64, 2, 2}, 64, 3, 1),
                                   convolution({64, 2, 2}, 64, 3, 2, 3),
                                   convolution({24, 5, 5}, 40, 3, 1),
                                   convolution({1, 9, 9}, 16, 5, 1),
                                   shaped("BatchNorm", LayerKind::BatchNorm, {5, 4, 3}, true),
                                   shaped("BatchNorm", LayerKind::BatchNorm, {16, 1, 1}),
                                   shaped("BatchNorm", LayerKind::BatchNorm, {32, 23, 17}, true),
                                   shaped("BatchNorm", LayerKind::BatchNorm, {64, 56, 56}, true),
                                   shaped("BatchNorm", LayerKind::BatchNorm, {64, 56, 56}),
                                   shaped("Add", LayerKind::Add, {64, 56, 57}, true),
                                   shaped("Relu", LayerKind::Relu, {7, 3, 5}),
                                   shaped("Relu", LayerKind::Relu, {512, 1, 1}),
                                   shaped("Add", LayerKind::Add, {3, 5, 7}),
                                   shaped("Add", LayerKind::Add, {3, 5, 7}, true),
                                   shaped("Add", LayerKind::Add, {32, 4, 4}),
                                   pool({3, 8, 9}, 3, 2, 1),
                                   pool({16, 6, 6}, 2, 2, 0),
                                   linear({2048, 1, 1}, 1000, 4),
                                   linear({2048, 1, 1}, 10, 2),
                                   linear({3, 8, 8}, 512, 4),
                                   linear({512, 1, 1}, 10, 3),
                                   linear({32, 4, 3}, 20, 2),
                                   LayerCase{"AveragePool5", make_layer(LayerKind::AveragePool, {5, 3, 4}, 5), 3}})
        add_unique(cases, added);
    return cases;
}

class CpuLayers : public testing::TestWithParam<LayerCase> {
protected:
    static constexpr unsigned kSeed = 5;

    LayerRig rig(const HostKernels& kernels) const {
        const auto& [name, layer, samples, per_block] = GetParam();
        LayerRig made(kernels, layer, samples, kernel(kernels));
        made.fill(kSeed);
        made.fill_gradient(safe_gradient(random_values(made.output_elements(), kSeed + 30), layer, samples,
                                         [](LayerRig& plain) { plain.fill(kSeed); }));
        return made;
    }

private:
    static std::unique_ptr<LayerKernel> kernel(const HostKernels& kernels) {
        const auto& [name, layer, samples, per_block] = GetParam();
        if (per_block == 0 || &kernels != &cpu_kernels())
            return kernels.make(layer, samples, false);
        switch (layer.kind) {
            case LayerKind::BatchNorm:
                return cpu::make_batch_norm(layer, samples, per_block);
            case LayerKind::AveragePool:
                return cpu::make_average_pool(layer, samples, per_block);
            case LayerKind::Concat:
                return cpu::make_concat(layer, samples, per_block);
            case LayerKind::Upsample:
                return cpu::make_upsample(layer, samples, per_block);
            case LayerKind::CrossEntropy:
                return cpu::make_cross_entropy(layer, samples, per_block);
            default:
                return cpu::make_mean_squared_error(layer, samples, per_block);
        }
    }
};

TEST_P(CpuLayers, ComputeWhatTheReferenceDoes) {
    compute_what_the_reference_does(rig(cpu_kernels()), rig(reference_kernels()), kTolerance);
}

class CpuLayersWithParameters : public CpuLayers {};

TEST_P(CpuLayersWithParameters, AddUpWeightGradients) { add_up_weight_gradients(rig(cpu_kernels()), kTolerance); }

TEST_P(CpuLayers, KeepNaN) {
    keep_nan(rig(cpu_kernels()));
    if (soaks() || GetParam().layer.flops_forward < 1e7)  // wider layers are the same loops there
        keep_nan(rig(reference_kernels()));
}

class CpuLayersWithAReLU : public CpuLayers {};

TEST_P(CpuLayersWithAReLU, PropagateNaNInTheBackward) {
    pass_nan_back(rig(cpu_kernels()));
    pass_nan_back(rig(reference_kernels()));
}

TEST_P(CpuLayers, WriteNothingElseWithoutSaving) {
    LayerRig saving = rig(cpu_kernels()), tested = rig(cpu_kernels());
    const auto parameters = tested.parameters();
    saving.forward(true);
    LayerArgs args = tested.args();
    args.saved = args.kept = nullptr;
    tested.kernel->forward(args, false);
    EXPECT_EQ(tested.parameters(), parameters);
    if (tested.layer.kind != LayerKind::BatchNorm) {  // its evaluation uses other moments
        EXPECT_EQ(tested.plain_output(), saving.plain_output());
    }
}

TEST_P(CpuLayers, EvaluateAsTheReferenceDoes) {
    evaluate_as_the_reference_does(rig(cpu_kernels()), rig(reference_kernels()), kTolerance);
}

class CpuBatchNorms : public CpuLayers {};

TEST_P(CpuBatchNorms, AverageAsTheReferenceDoes) {
    const LayerRig tested = rig(cpu_kernels());
    const std::int64_t count = tested.samples * tested.layer.input.elements();
    average_as_the_reference_does(cpu_kernels(), rig(cpu_kernels()), rig(reference_kernels()),
                                  {random_values(count, 1), random_values(count, 2), random_values(count, 3)},
                                  kTolerance);
}

TEST_P(CpuLayersWithParameters, SkipUnneededInputGradients) {
    skip_unwanted_input_gradients(rig(cpu_kernels()), rig(cpu_kernels()));
}

TEST_P(CpuLayers, RoundTripExactly) {
    const LayerRig tested = rig(cpu_kernels());
    round_trip_exactly(tested, rig(reference_kernels()),
                       random_values(tested.samples * tested.layer.input.elements(), 3),
                       random_values(tested.output_elements(), 4));
}

TEST_P(CpuLayers, HaveAlignedSizes) { have_aligned_sizes(rig(cpu_kernels()).sizes); }

TEST_P(CpuLayers, RepeatTheirBits) { repeat_their_bits(rig(cpu_kernels()), rig(cpu_kernels())); }

std::vector<LayerCase> cases_that(bool (*fit)(const Layer& layer)) {
    std::vector<LayerCase> cases = all_cases();
    std::erase_if(cases, [&](const LayerCase& each) { return !fit(each.layer); });
    return cases;
}

bool has_parameters(const Layer& layer) { return !parameters_of(layer).empty(); }

// The ReLU of a linear layer is a separate layer.
bool has_relu(const Layer& layer) {
    return layer.kind == LayerKind::Relu || (layer.relu && layer.kind != LayerKind::Linear);
}

bool is_batch_norm(const Layer& layer) { return layer.kind == LayerKind::BatchNorm; }

INSTANTIATE_TEST_SUITE_P(Shapes, CpuLayers, testing::ValuesIn(all_cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Shapes, CpuLayersWithParameters, testing::ValuesIn(cases_that(has_parameters)), name_of_case);
INSTANTIATE_TEST_SUITE_P(Shapes, CpuLayersWithAReLU, testing::ValuesIn(cases_that(has_relu)), name_of_case);
INSTANTIATE_TEST_SUITE_P(Shapes, CpuBatchNorms, testing::ValuesIn(cases_that(is_batch_norm)), name_of_case);

TEST(CpuKernels, UpdateLikeTheReference) {
    const Sgd sgd{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 1e-2};
    std::vector<std::vector<float>> results;
    for (const HostKernels* kernels : {&cpu_kernels(), &reference_kernels()}) {
        AlignedBytes w(4096), g(4096), v(4096), next(4096);
        unsigned seed = 0;
        for (const AlignedBytes* block : {&w, &g, &v})
            std::ranges::copy(random_values(1024, ++seed), reinterpret_cast<float*>(block->get()));
        kernels->update(sgd, w.get(), g.get(), {v.get()}, next.get(), 4096);
        kernels->update(sgd, next.get(), g.get(), {v.get()}, next.get(), 4096);
        kernels->add(g.get(), v.get(), 4096);
        for (const AlignedBytes* block : {&v, &next}) {
            const auto* data = reinterpret_cast<const float*>(block->get());
            results.emplace_back(data, data + 1024);
        }
    }
    expect_close(results[0], results[2], kTolerance, "momentum");
    expect_close(results[1], results[3], kTolerance, "weights");
}

// In own loops the number of threads changes only the division of the work.
TEST(CpuKernels, NormaliseAlikeOnAnyNumberOfThreads) {
    std::vector<std::vector<float>> outputs;
    for (int threads : {1, 2}) {
        cpu_kernels().start_device(threads);
        LayerRig rig(cpu_kernels(), make_layer(LayerKind::BatchNorm, {64, 14, 14}, 64, 1, 1, 0, true), 4);
        rig.fill(1);
        rig.forward();
        rig.backward();
        outputs.push_back(rig.plain_output());
        outputs.push_back(rig.plain_input_gradient(0));
    }
    cpu_kernels().start_device(1);
    EXPECT_EQ(outputs[0], outputs[2]);
    EXPECT_EQ(outputs[1], outputs[3]);
}

// A mean a thousand times larger than the deviation does not spoil the variance.
TEST(CpuKernels, NormaliseFarFromZero) {
    std::vector<std::vector<float>> outputs;
    for (const HostKernels* kernels : {&cpu_kernels(), &reference_kernels_double()}) {
        LayerRig rig(*kernels, make_layer(LayerKind::BatchNorm, {16, 20, 20}, 16), 2);
        rig.fill(1);
        auto values = random_values(rig.samples * rig.layer.input.elements(), 2);
        std::ranges::transform(values, values.begin(), [](float v) { return v + 1000; });
        rig.kernel->fill_input(values, rig.inputs[0].get());
        rig.forward();
        outputs.push_back(rig.plain_output());
    }
    EXPECT_LE(relative_error(outputs[0], outputs[1]), 2e-4);  // the mean itself rounds to 6e-5
}

}  // namespace
}  // namespace pw
