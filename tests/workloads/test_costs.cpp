// Costs per layer and per stage, analytic and measured.
#include "tests/support/layer_of.h"
#include "tests/support/refusal.h"
#include "workloads/costs/costs.h"
#include "workloads/error.h"
#include "workloads/models/mlp.h"
#include "workloads/models/resnet.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

using namespace pw;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Every pass of every layer takes a different time; n samples take n times as long, plus a start.
Profile measured_mlp(const std::vector<int>& sizes) {
    const Model model = build_mlp({1, 4, 4}, 10);
    Profile profile = analytic_profile(model, sizes.front(), {});
    profile.dispatch.median = 77;
    profile.sent_copies = true;
    profile.data.clear();
    profile.data_bytes.clear();
    for (const int samples : sizes) {
        profile.data[samples].median = 1000 * samples;
        profile.data_bytes[samples] = 64 * samples;
    }
    Ns start = 10;
    for (LayerProfile& layer : profile.layers) {
        layer.times.clear();
        layer.update.median = start;
        for (const int samples : sizes) {
            LayerTimes& times = layer.times[samples];
            times.forward.median = start + 100 * samples;
            times.backward_input.median = start + 200 * samples;
            times.backward_weight.median = start + 300 * samples;
            times.backward.median = start + 400 * samples;  // less than I + W
            times.accumulate.median = start + 50 * samples;
            layer.bytes[samples] = analytic_bytes(layer_of(model, layer.name), samples);
        }
        start += 10;
    }
    return profile;
}

}  // namespace

TEST(AnalyticBytes, AreAlignedAndGrowWithTheSamples) {
    const Model model = build_resnet50(64, 10);
    for (std::size_t layer = 0; layer < num_vertices(model.layers); ++layer) {
        const LayerBytes one = analytic_bytes(model.layers[layer], 1), many = analytic_bytes(model.layers[layer], 64);
        for (const Bytes size : {one.weights, one.statistics, one.output, one.saved_until_input, many.output})
            EXPECT_EQ(size % 64, 0);
        EXPECT_EQ(one.weights, many.weights);
        EXPECT_EQ(one.statistics, many.statistics);
        EXPECT_LE(one.output, many.output);
        EXPECT_LE(many.output, 64 * one.output);
    }
}

TEST(AnalyticBytes, AreThoseOfPlainTensors) {
    const Model model = build_resnet50(224, 1000);
    const LayerBytes conv = analytic_bytes(layer_of(model, "conv1"), 4);
    EXPECT_EQ(conv.weights, 4 * 64 * 3 * 7 * 7);
    EXPECT_EQ(conv.output, Bytes{4} * 4 * 64 * 112 * 112);
    EXPECT_EQ(conv.saved_until_input, 0);
    const LayerBytes bn = analytic_bytes(layer_of(model, "bn1"), 4);
    EXPECT_EQ(bn.weights, 2 * 4 * 64);
    EXPECT_EQ(bn.statistics, 2 * 4 * 64);
    EXPECT_EQ(bn.saved_until_input, 4 * 64 * 112 * 112 + 2 * 4 * 64);  // a mask, mean and deviation
    EXPECT_EQ(analytic_bytes(layer_of(model, "loss"), 4).output, 0);
}

// Tensors and the weights that products read have two bytes, master weights and statistics four, masks one.
TEST(AnalyticBytes, FollowThePrecision) {
    const Model model = build_resnet50(224, 1000);
    const LayerBytes conv = analytic_bytes(layer_of(model, "conv1"), 4, Precision::Bf16);
    EXPECT_EQ(conv.weights, (2 + 4) * 64 * 3 * 7 * 7);
    EXPECT_EQ(conv.output, Bytes{2} * 4 * 64 * 112 * 112);
    const LayerBytes bn = analytic_bytes(layer_of(model, "bn1"), 4, Precision::Bf16);
    EXPECT_EQ(bn.statistics, 2 * 4 * 64);
    EXPECT_EQ(bn.saved_until_input, 4 * 64 * 112 * 112 + 2 * 4 * 64);
}

TEST(AnalyticTimes, AreWorkOverRateWhenMemoryIsFast) {
    const Model model = build_resnet50(224, 1000);
    const DeviceRates rates{.flops = 1e9, .memory_bandwidth = kInfinity};
    for (const std::string_view name : {"layer1.0.conv2", "fc"}) {
        const Layer& layer = layer_of(model, name);
        const LayerTimes times = analytic_times(layer, 8, rates);
        EXPECT_EQ(times.forward.median, static_cast<Ns>(8 * layer.flops_forward));
        EXPECT_EQ(times.backward_input, times.forward);
        EXPECT_EQ(times.backward_weight, times.forward);
        EXPECT_EQ(times.backward.median, 2 * times.forward.median);
        EXPECT_EQ(times.accumulate.median, 0);
        EXPECT_EQ(times.recompute, times.forward);
    }
    EXPECT_EQ(analytic_times(layer_of(model, "bn1"), 8, rates), LayerTimes{});
}

TEST(AnalyticTimes, AreBytesOverBandwidthWhenComputeIsFast) {
    const Model model = build_mlp({1, 4, 4}, 10);
    const DeviceRates rates{.flops = kInfinity, .memory_bandwidth = 1e9};
    const LayerTimes relu = analytic_times(layer_of(model, "relu1"), 8, rates);
    EXPECT_EQ(relu.forward.median, 2 * 4 * 512 * 8);         // reads x, writes y
    EXPECT_EQ(relu.backward_input.median, 3 * 4 * 512 * 8);  // reads dy and x, writes dx
    EXPECT_EQ(relu.backward_weight.median, 0);
    const LayerTimes linear = analytic_times(layer_of(model, "fc2"), 8, rates);
    EXPECT_EQ(linear.forward.median, 2 * 4 * 512 * 8 + 4 * 512 * 513);
    EXPECT_EQ(linear.backward_weight.median, 2 * 4 * 512 * 8 + 4 * 512 * 513);
    EXPECT_EQ(linear.accumulate.median, 3 * 4 * 512 * 513);  // reads both, writes the sum
}

TEST(AnalyticTimes, HaveNoInputGradientOfTheData) {
    const DeviceRates rates;
    const LayerTimes first = analytic_times(layer_of(build_resnet50(64, 10), "conv1"), 4, rates);
    EXPECT_EQ(first.backward_input.median, 0);
    EXPECT_GT(first.backward_weight.median, 0);
}

TEST(LayerTimesPerLayer, AreForwardPlusMeasuredBackward) {
    Profile profile = measured_mlp({4});
    EXPECT_EQ(layer_times(build_mlp({1, 4, 4}, 10).layers, profile, 4),
              (std::vector<Ns>{2020, 2040, 2060, 2080, 2100, 2120, 2140}));
    profile.layers[0].times[4].backward = {};
    EXPECT_EQ(layer_times(build_mlp({1, 4, 4}, 10).layers, profile, 4)[0],
              10 + 400 + 10 + 800 + 10 + 1200);  // I + W instead
    profile.layers[3].times.clear();
    expect_says(refusal([&] { layer_times(build_mlp({1, 4, 4}, 10).layers, profile, 4); }), {"'relu2'", "no times"});
}

TEST(CostsOf, SumTheLayersOfEachStage) {
    const Model model = build_mlp({1, 4, 4}, 10);
    const Costs costs = costs_of(model, split_at(model.layers, {"fc2"}), measured_mlp({4}), 4);
    ASSERT_EQ(costs.stage.size(), 2u);
    EXPECT_EQ(costs.stage[0].forward, 10 + 20 + 2 * 400 + 4000);  // and the data
    EXPECT_EQ(costs.stage[0].backward, 10 + 20 + 2 * 1600);
    EXPECT_EQ(costs.stage[0].backward_input, 10 + 20 + 2 * 800);
    EXPECT_EQ(costs.stage[0].backward_weight, 10 + 20 + 2 * 1200);
    EXPECT_EQ(costs.stage[0].accumulate, 10 + 20 + 2 * 200);
    EXPECT_EQ(costs.stage[0].recompute, 10 + 20 + 2 * 400);  // without the data, which is still there
    EXPECT_EQ(costs.stage[0].update, 10 + 20);
    EXPECT_EQ(costs.stage[1].forward, 30 + 40 + 50 + 60 + 70 + 5 * 400);
    EXPECT_EQ(costs.dispatch, 77);
    EXPECT_TRUE(costs.sent_copies);
    EXPECT_FALSE(costs.interpolated);
}

TEST(CostsOf, AddUpToTheSameTotalsForEverySplit) {
    const Model model = build_resnet50(64, 10);
    const Profile profile = analytic_profile(model, 4, {});
    const Costs whole = costs_of(model, split_even(model.layers, 1), profile, 4);
    for (const int stages : {2, 3, 7, 16, static_cast<int>(num_vertices(model.layers))}) {
        const Costs costs = costs_of(model, split_even(model.layers, stages), profile, 4);
        StageCost sum;
        Bytes weights = 0, statistics = 0;
        for (int stage = 0; stage < stages; ++stage) {
            sum.forward += costs.stage[stage].forward;
            sum.backward += costs.stage[stage].backward;
            sum.update += costs.stage[stage].update;
            weights += costs.bytes[stage].weights;
            statistics += costs.bytes[stage].statistics;
        }
        EXPECT_EQ(sum.forward, whole.stage[0].forward);
        EXPECT_EQ(sum.backward, whole.stage[0].backward);
        EXPECT_EQ(sum.update, whole.stage[0].update);
        EXPECT_EQ(weights, whole.bytes[0].weights);
        EXPECT_EQ(statistics, whole.bytes[0].statistics);
        EXPECT_EQ(costs.edges.size(), boundaries_of(model.layers, split_even(model.layers, stages)).size());
    }
}

// SGD reads weights, gradients and momentum and writes two of them: five trips of 4 bytes for each parameter. AdamW
// reads four blocks and writes three.
TEST(AnalyticCosts, UpdatesTakeTheirTripsThroughMemory) {
    const Model model = build_resnet50(64, 10);
    const std::int64_t parameters = layer_of(model, "fc").parameters;
    ASSERT_EQ(parameters, 2048 * 10 + 10);
    const DeviceRates rates{.flops = 1e15, .memory_bandwidth = 4e9};
    const auto update = [&](OptimizerKind optimizer) {
        return analytic_profile(model, 4, rates, {.optimizer = optimizer}).layers;
    };
    const std::vector<LayerProfile> sgd = update(OptimizerKind::Sgd), adamw = update(OptimizerKind::AdamW);
    const auto fc = std::ranges::find(sgd, "fc", &LayerProfile::name) - sgd.begin();
    EXPECT_EQ(sgd[fc].update.median, 5 * parameters);
    EXPECT_EQ(adamw[fc].update.median, 7 * parameters);
}

TEST(CostsOf, ChargeTheTensorsThatCross) {
    const Model model = build_mlp({1, 4, 4}, 10);
    const Costs costs = costs_of(model, split_at(model.layers, {"fc2"}), measured_mlp({4}), 4);
    ASSERT_EQ(costs.edges.size(), 1u);
    EXPECT_EQ(costs.edges[0].forward, 4 * 512 * 4);
    EXPECT_EQ(costs.edges[0].backward, 4 * 512 * 4);
    EXPECT_EQ(costs.bytes[0].data, 64 * 4);
    EXPECT_EQ(costs.bytes[1].data, 0);
}

// W needs none of the gradients that B has in its workspace, I has those between layers without W.
TEST(CostsOf, HaveAWorkspaceForEveryPass) {
    const Model model = build_mlp({1, 4, 4}, 10);
    const StageBytes bytes = costs_of(model, split_even(model.layers, 1), measured_mlp({4}), 4).bytes[0];
    EXPECT_GT(bytes.gradient_kept, 0);
    EXPECT_GT(bytes.backward_workspace, bytes.input_workspace);
    EXPECT_GE(bytes.input_workspace, bytes.weight_workspace);
}

TEST(Interpolation, IsLinearBetweenAndBeyondTheMeasuredSizes) {
    const Model model = build_mlp({1, 4, 4}, 10);
    const StageSplit split = split_at(model.layers, {"fc2"});
    const Profile dense = measured_mlp({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
    const Profile sparse = measured_mlp({4, 8, 12});
    for (int samples = 1; samples <= 16; ++samples) {
        const Costs exact = costs_of(model, split, dense, samples), guess = costs_of(model, split, sparse, samples);
        EXPECT_FALSE(exact.interpolated);
        EXPECT_EQ(guess.interpolated, samples % 4 != 0 || samples == 16);
        for (int stage = 0; stage < 2; ++stage) {
            EXPECT_EQ(guess.stage[stage].forward, exact.stage[stage].forward);
            EXPECT_EQ(guess.stage[stage].backward, exact.stage[stage].backward);
            EXPECT_EQ(guess.bytes[stage].weights, exact.bytes[stage].weights);
        }
        EXPECT_EQ(guess.edges[0].forward, exact.edges[0].forward);
        EXPECT_EQ(layer_times(model.layers, sparse, samples), layer_times(model.layers, dense, samples));
    }
}

TEST(Interpolation, FromOneSizeIsProportional) {
    const Profile profile = measured_mlp({4});
    const auto four = layer_times(build_mlp({1, 4, 4}, 10).layers, profile, 4),
               six = layer_times(build_mlp({1, 4, 4}, 10).layers, profile, 6);
    for (std::size_t layer = 0; layer < four.size(); ++layer)
        EXPECT_EQ(six[layer], std::llround(1.5 * static_cast<double>(four[layer])));
    const Model model = build_mlp({1, 4, 4}, 10);
    const Costs costs = costs_of(model, split_even(model.layers, 1), profile, 6);
    EXPECT_TRUE(costs.interpolated);
    EXPECT_EQ(costs.bytes[0].weights, costs_of(model, split_even(model.layers, 1), profile, 4).bytes[0].weights);
}

TEST(Interpolation, NeverFallsBelowZeroAndIsRefusedBeyondTheLimit) {
    Profile profile = measured_mlp({4, 8});
    profile.layers[0].times[4].forward.median = 1;
    profile.layers[0].times[8].forward.median = 1'000'000'000'000;
    EXPECT_GE(layer_times(build_mlp({1, 4, 4}, 10).layers, profile, 1)[0], 0);
    expect_says(refusal([&] {
                    layer_times(build_mlp({1, 4, 4}, 10).layers, profile, std::numeric_limits<int>::max());
                }),
                {"layer 'fc1'", "smaller micro-batches"});
}

TEST(CostsOf, RefuseAProfileOfSomethingElse) {
    const Model model = build_mlp({1, 4, 4}, 10);
    const StageSplit split = split_even(model.layers, 2);
    const auto message = [&](const std::function<void(Profile&)>& change) {
        Profile profile = measured_mlp({4});
        change(profile);
        return refusal([&] { costs_of(model, split, profile, 4); });
    };
    expect_says(message([](Profile& p) { p.model = "resnet50"; }), {"'resnet50'", "'mlp'", "pipewright profile"});
    expect_says(message([](Profile& p) { p.input = {3, 4, 4}; }), {"3x4x4", "1x4x4"});
    expect_says(message([](Profile& p) { p.classes = 100; }), {"100", "10"});
    expect_says(message([](Profile& p) { p.layers[2].name = "fc9"; }), {"layer 2", "'fc9'", "'fc2'"});
    expect_says(message([](Profile& p) { p.layers.pop_back(); }), {"6 layers", "7"});
    expect_says(message([](Profile& p) { p.layers[1].bytes.clear(); }), {"'relu1'", "no bytes"});
    expect_says(message([](Profile& p) { p.data.clear(); }), {"input data"});
}
