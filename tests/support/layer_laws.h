// Laws of the kernels of every backend, layer by layer, against the reference kernels.
#pragma once

#include "exec/training/batch_statistics.h"
#include "tests/support/layer_rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace pw {

inline double relative_error(const std::vector<float>& actual, const std::vector<float>& expected) {
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        difference += std::pow(double{actual.at(i)} - double{expected[i]}, 2);
        norm += std::pow(double{expected[i]}, 2);
    }
    return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

inline void expect_close(const std::vector<float>& actual, const std::vector<float>& expected, double tolerance,
                         const std::string& what) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    EXPECT_LE(relative_error(actual, expected), tolerance) << what;  // NaN fails too
}

inline void expect_close(const std::vector<std::vector<float>>& actual, const std::vector<std::vector<float>>& expected,
                         double tolerance, const std::string& what) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    for (std::size_t k = 0; k < expected.size(); ++k)
        expect_close(actual[k], expected[k], tolerance, what + " " + std::to_string(k));
}

// Returns the gradient with zeros where two backends may round a value near zero to either side of a ReLU: no gradient
// enters there. `fill` fills a rig as the tested one is.
template <class Fill>
std::vector<float> safe_gradient(std::vector<float> gradient, const Layer& layer, int samples, Fill fill) {
    if (!layer.relu)
        return gradient;
    Layer plain = layer;
    plain.relu = false;
    LayerRig rig(reference_kernels(), plain, samples);
    fill(rig);
    rig.forward();
    const auto values = rig.plain_output();
    for (std::size_t i = 0; i < values.size(); ++i)
        if (std::abs(values[i]) < 1e-4f)
            gradient[i] = 0;
    return gradient;
}

inline void compute_what_the_reference_does(LayerRig tested, LayerRig expected, double tolerance) {
    for (LayerRig* each : {&tested, &expected}) {
        each->forward();
        each->backward();
    }
    EXPECT_NEAR(tested.loss(), expected.loss(), 1e-6 * std::abs(expected.loss()));
    expect_close(tested.plain_output(), expected.plain_output(), tolerance, "output");
    for (std::size_t k = 0; k < tested.inputs.size(); ++k)
        expect_close(tested.plain_input_gradient(k), expected.plain_input_gradient(k), tolerance, "input gradient");
    expect_close(tested.parameter_gradients(), expected.parameter_gradients(), tolerance, "parameter gradient");
    expect_close(tested.parameters(), expected.parameters(), tolerance, "parameter");
}

inline bool has_nan(const std::vector<float>& values) {
    return std::ranges::any_of(values, [](float value) { return std::isnan(value); });
}

// Checks that a layer passes NaN on as PyTorch's layers do, ReLU and max pool included: a run that diverges must not
// look sound.
inline void keep_nan(LayerRig tested) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> values = random_values(tested.input_elements(0), 5);
    const auto marked = tested.layer.kind == LayerKind::Dropout ? std::ssize(values) : 1;  // it may drop the first
    std::fill_n(values.begin(), marked, nan);
    tested.kernel->fill_input(values, tested.inputs[0].get());
    for (const bool save : {false, true}) {
        tested.forward(save);
        EXPECT_TRUE(is_loss(tested.layer.kind) ? std::isnan(tested.loss()) : has_nan(tested.plain_output())) << save;
    }
    tested.fill_gradient(std::vector<float>(static_cast<std::size_t>(tested.output_elements()), nan));
    tested.backward();
    EXPECT_TRUE(has_nan(tested.plain_input_gradient(0)));
    for (const std::vector<float>& gradient : tested.parameter_gradients())
        EXPECT_TRUE(has_nan(gradient));
}

// Checks that a ReLU passes NaN on, and the gradient there.
inline void pass_nan_back(LayerRig tested) {
    std::vector<float> values = random_values(tested.input_elements(0), 5);
    values.front() = std::numeric_limits<float>::quiet_NaN();
    tested.kernel->fill_input(values, tested.inputs[0].get());
    tested.fill_gradient(std::vector<float>(static_cast<std::size_t>(tested.output_elements()), 1));
    tested.forward();
    tested.backward();
    const float gradient = tested.plain_input_gradient(0).front();
    if (tested.layer.kind == LayerKind::BatchNorm)
        EXPECT_TRUE(std::isnan(gradient));
    else
        EXPECT_EQ(gradient, 1);
}

inline void add_up_weight_gradients(LayerRig tested, double tolerance) {
    tested.forward();
    tested.backward();
    auto doubled = tested.parameter_gradients();
    tested.backward(true);
    for (auto& values : doubled)
        std::ranges::transform(values, values.begin(), [](float v) { return 2 * v; });
    expect_close(tested.parameter_gradients(), doubled, tolerance, "parameter gradient");
}

// Checks evaluation: only the output is written.
inline void evaluate_as_the_reference_does(LayerRig tested, LayerRig expected, double tolerance) {
    const auto parameters = tested.parameters();
    for (LayerRig* each : {&tested, &expected}) {
        LayerArgs args = each->args();
        args.saved = args.kept = nullptr;
        each->kernel->forward(args, false);
    }
    expect_close(tested.plain_output(), expected.plain_output(), tolerance, "output");
    EXPECT_EQ(tested.parameters(), parameters);
}

// Returns the running averages of a batch norm after a mini-batch with these inputs.
inline std::vector<std::vector<float>> averaged(const Kernels& kernels, LayerRig& rig, bool deferred,
                                                const std::vector<std::vector<float>>& inputs) {
    std::vector<Block> blocks;
    std::vector<std::byte*> addresses;
    for (const std::vector<float>& values : inputs) {
        rig.kernel->fill_input(values, rig.inputs[0].get());
        blocks.emplace_back(kernels, rig.sizes.statistics);
        addresses.push_back(blocks.back().get());
        LayerArgs args = rig.args();
        args.statistics = addresses.back();
        rig.kernel->forward(args, true);
    }
    const StatisticsTable table(kernels, addresses, std::vector<int>(inputs.size(), rig.samples));
    rig.kernel->gather_statistics(table.of(0, static_cast<int>(inputs.size()) - 1, deferred), rig.statistics.get());
    const auto parameters = rig.parameters();
    return {parameters[2], parameters[3]};
}

inline void average_as_the_reference_does(const Kernels& kernels, LayerRig tested, LayerRig expected,
                                          const std::vector<std::vector<float>>& inputs, double tolerance) {
    for (const bool deferred : {false, true})
        expect_close(averaged(kernels, tested, deferred, inputs),
                     averaged(reference_kernels(), expected, deferred, inputs), tolerance,
                     deferred ? "deferred average" : "average");
}

// `inputs` and `outputs` are values that the backend's tensors can hold.
inline void round_trip_exactly(const LayerRig& tested, const LayerRig& expected, const std::vector<float>& inputs,
                               const std::vector<float>& outputs) {
    EXPECT_EQ(tested.parameters(), expected.parameters());
    tested.kernel->fill_input(inputs, tested.inputs[0].get());
    EXPECT_EQ(tested.kernel->read_input(tested.inputs[0].get()), inputs);
    tested.kernel->fill_output(outputs, tested.output.get());
    EXPECT_EQ(tested.plain_output(), outputs);
}

inline void skip_unwanted_input_gradients(LayerRig tested, LayerRig full) {
    for (LayerRig* each : {&tested, &full})
        each->forward();
    full.backward();
    const std::vector<std::byte*> none(tested.inputs.size(), nullptr);
    LayerArgs args = tested.args();
    args.input_gradients = none;
    tested.kernel->backward_input(args);
    tested.kernel->backward_weight(args);
    EXPECT_EQ(tested.parameter_gradients(), full.parameter_gradients());
}

inline void have_aligned_sizes(const LayerBytes& sizes) {
    for (Bytes size : {sizes.weights, sizes.statistics, sizes.output, sizes.saved_until_input, sizes.kept_until_weight,
                       sizes.scratch})
        EXPECT_EQ(size % 64, 0);
}

// Checks that two rigs filled alike compute the same bits.
inline void repeat_their_bits(LayerRig first, LayerRig second) {
    for (LayerRig* each : {&first, &second}) {
        each->forward();
        each->backward();
    }
    EXPECT_EQ(first.loss(), second.loss());
    EXPECT_EQ(first.plain_output(), second.plain_output());
    for (std::size_t k = 0; k < first.inputs.size(); ++k)
        EXPECT_EQ(first.plain_input_gradient(k), second.plain_input_gradient(k));
    EXPECT_EQ(first.parameter_gradients(), second.parameter_gradients());
    EXPECT_EQ(first.parameters(), second.parameters());
}

}  // namespace pw
