// GPT-2: its layers and parameters, its gradients as a whole, and its training on pipelines.
#include "tests/support/layer_of.h"
#include "tests/support/predicted_memory.h"
#include "tests/support/refusal.h"
#include "tests/support/whole_model.h"
#include "workloads/models/gpt.h"
#include "workloads/models/initial_parameters.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace pw {
namespace {

constexpr const char* kGpt = R"(
workload: {model: gpt, sequence_length: 6, vocabulary: 11, embedding: 8, blocks: 2, heads: 2}
pipeline: {schedule: naive, micro_batches: 4, micro_batch_size: 2}
training: {steps: 2, learning_rate: 0.1, seed: 3}
run: {backend: reference}
)";

std::size_t size_of(const Model& model) { return boost::num_vertices(model.layers); }

TEST(Gpt2, HasThePublishedParameters) {
    const Model model =
        build_gpt({.sequence_length = 1024, .vocabulary = 50'257, .width = 768, .blocks = 12, .heads = 12});
    std::int64_t count = 0;
    for (std::size_t layer = 0; layer < size_of(model); ++layer)
        for (const ParameterShape& shape : parameters_of(model.layers[layer]))
            count += shape.elements();
    EXPECT_EQ(count, 124'439'808);
}

TEST(Gpt2, HasThePublishedNames) {
    const Model model = build_gpt({.sequence_length = 5, .vocabulary = 7, .width = 4, .blocks = 2, .heads = 2});
    std::map<std::string, std::vector<int>> shapes;
    for (std::size_t layer = 0; layer < size_of(model); ++layer)
        for (const ParameterShape& shape : parameters_of(model.layers[layer]))
            shapes[shape.name] = shape.shape;
    std::map<std::string, std::vector<int>> expected{
        {"wte.weight", {7, 4}}, {"wpe.weight", {5, 4}}, {"ln_f.weight", {4}}, {"ln_f.bias", {4}}};
    for (const std::string block : {"h.0.", "h.1."})
        for (const auto& [name, outputs, inputs] :
             std::vector<std::tuple<std::string, int, int>>{{"ln_1", 4, 0},
                                                            {"attn.c_attn", 12, 4},
                                                            {"attn.c_proj", 4, 4},
                                                            {"ln_2", 4, 0},
                                                            {"mlp.c_fc", 16, 4},
                                                            {"mlp.c_proj", 4, 16}}) {
            expected[block + name + ".weight"] =
                inputs > 0 ? std::vector<int>{outputs, inputs} : std::vector<int>{outputs};
            expected[block + name + ".bias"] = {outputs};
        }
    EXPECT_EQ(shapes, expected);
    EXPECT_EQ(layer_of(model, "lm_head").tied_to, "wte");
    EXPECT_EQ(labels_per_sample(model), 5);
}

TEST(Gpt2, HasDropoutsOnlyIfConfigured) {
    const auto dropouts = [](double probability) {
        const Model model = build_gpt({.width = 8, .blocks = 3, .heads = 2, .dropout = probability});
        int count = 0;
        for (std::size_t layer = 0; layer < size_of(model); ++layer)
            count += model.layers[layer].kind == LayerKind::Dropout ? 1 : 0;
        return count;
    };
    EXPECT_EQ(dropouts(0), 0);
    EXPECT_EQ(dropouts(0.1), 1 + 2 * 3);
}

TEST(Gpt2, RefusesImpossibleShapes) {
    expect_says(refusal([] { build_gpt({.width = 10, .heads = 3}); }), {"10", "3 heads"});
    expect_says(refusal([] { build_gpt({.blocks = 0}); }), {"0 blocks"});
}

double deviation_of(const std::vector<float>& values) {
    double squares = 0;
    for (const float value : values)
        squares += double{value} * value;
    return std::sqrt(squares / static_cast<double>(values.size()));
}

TEST(Gpt2, HasThePublishedInitialValues) {
    const Model model = build_gpt({.vocabulary = 100, .width = 64, .blocks = 8, .heads = 2});
    const auto first = [&](const std::string& name) {
        return initial_parameters(model.layers, find_layer(model.layers, name), 1).at(0);
    };
    for (const char* name : {"wte", "wpe", "h.3.attn.c_attn", "h.7.mlp.c_fc"})
        EXPECT_NEAR(deviation_of(first(name)), 0.02, 0.001) << name;
    for (const char* name : {"h.3.attn.c_proj", "h.7.mlp.c_proj"})
        EXPECT_NEAR(deviation_of(first(name)), 0.02 / 4, 0.0003) << name;  // 16 residual sums
    EXPECT_EQ(first("h.0.ln_1"), std::vector<float>(64, 1));
    EXPECT_EQ(first("lm_head"), first("wte"));
}

const GptShape kTiny{.sequence_length = 4, .vocabulary = 5, .width = 4, .blocks = 2, .heads = 2};

TEST(Gpt2, GradientsAreDerivatives) { expect_gradients_are_derivatives(build_gpt(kTiny)); }

TEST(Gpt2, BackwardInTwoPartsIsTheBackward) { expect_backward_in_two_is_the_backward(build_gpt(kTiny)); }

TEST(GptRun, EveryFlushingScheduleEqualsItsOracle) {
    for (const char* backend : {"reference", "cpu"})
        for (const char* schedule : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"})
            for (const char* split : {"even", "auto"}) {
                const Execution execution(kGpt, {"cluster.devices=2", fmt::format("run.backend={}", backend),
                                                 fmt::format("pipeline.schedule={}", schedule),
                                                 fmt::format("pipeline.split={}", split), "workload.dropout=0.1"});
                expect_equal(execution.run(), execution.oracle(), fmt::format("{} {} {}", backend, schedule, split));
            }
}

// Stages that share a table must flush; here the last layer has a table of its own.
TEST(GptRun, PipeDreamEqualsItsOracle) {
    for (const char* backend : {"reference", "cpu"}) {
        Model model = build_gpt({.sequence_length = 6, .vocabulary = 11, .width = 8, .blocks = 2, .heads = 2});
        model.layers[static_cast<std::size_t>(find_layer(model.layers, "lm_head"))].tied_to.clear();
        const Execution execution(kGpt,
                                  {"cluster.devices=2", "pipeline.schedule=pipedream", "pipeline.split=[h.1]",
                                   fmt::format("run.backend={}", backend)},
                                  std::move(model));
        expect_equal(execution.run(), execution.oracle(), backend);
    }
}

// The cuts are in the embedding, between q, k, v and attention, inside a residual branch, and before the head.
TEST(GptRun, SameNumbersForEverySplit) {
    for (const char* backend : {"reference", "cpu"}) {
        const std::string chosen = fmt::format("run.backend={}", backend);
        const RunResult whole = Execution(kGpt, {"cluster.devices=1", chosen}).run();
        for (const char* cut : {"wpe", "h.0.attn.core", "h.0.mlp.act", "h.1", "lm_head"})
            for (const char* schedule : {"1f1b", "zb-h1"})
                expect_equal(Execution(kGpt, {"cluster.devices=2", chosen, fmt::format("pipeline.split=[{}]", cut),
                                              fmt::format("pipeline.schedule={}", schedule)})
                                 .run(),
                             whole, fmt::format("{} {} {}", backend, cut, schedule));
    }
}

TEST(GptRun, RecomputedStagesGiveTheSameNumbers) {
    for (const char* schedule : {"1f1b", "zb-h1"}) {
        const std::vector<std::string> set{"cluster.devices=2", "pipeline.split=[h.1]",
                                           fmt::format("pipeline.schedule={}", schedule)};
        expect_equal(Execution(kGpt, with(set, {"pipeline.recompute=all"})).run(), Execution(kGpt, set).run(),
                     schedule);
    }
}

TEST(GptRun, CpuAgreesWithTheReference) {
    const RunResult reference = Execution(kGpt, {"cluster.devices=1"}).run(),
                    cpu = Execution(kGpt, {"cluster.devices=1", "run.backend=cpu"}).run();
    ASSERT_EQ(reference.losses.size(), cpu.losses.size());
    for (std::size_t step = 0; step < cpu.losses.size(); ++step) {
        EXPECT_NEAR(cpu.losses[step], reference.losses[step], 1e-5 * reference.losses[step]);
        EXPECT_NEAR(cpu.gradient_norms[step], reference.gradient_norms[step], 1e-4 * reference.gradient_norms[step]);
    }
}

TEST(GptRun, CountedMemoryIsThePredictedOne) {
    const Profile profile = measured(kGpt, 2);
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
        for (const char* cut : {"h.0.attn.core", "h.1"})
            expect_predicted_memory(kGpt,
                                    {"cluster.devices=2", "training.steps=1", fmt::format("pipeline.split=[{}]", cut),
                                     fmt::format("pipeline.schedule={}", schedule)},
                                    profile);
}

double mean_of(const std::vector<double>& values, std::size_t first, std::size_t count) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first);
    return std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(count), 0.0) / static_cast<double>(count);
}

// The loss begins at the logarithm of the vocabulary; the synthetic text has 1.21 nats per token.
TEST(GptRun, LearnsTheSyntheticText) {
    const RunResult run =
        Execution(kGpt, {"cluster.devices=2", "pipeline.schedule=1f1b", "run.backend=cpu", "training.steps=150",
                         "workload.sequence_length=16", "workload.vocabulary=24", "workload.embedding=32",
                         "pipeline.micro_batch_size=8", "training.learning_rate=0.1", "training.clip_norm=1"})
            .run();
    EXPECT_NEAR(run.losses.front(), std::log(24.0), 0.05);
    EXPECT_LT(mean_of(run.losses, 145, 5), 1.9);
}

TEST(GptRun, Evaluates) {
    const RunResult run = Execution(kGpt, {"cluster.devices=2", "pipeline.schedule=forward-only"}).run();
    EXPECT_NEAR(run.losses.front(), std::log(11.0), 0.05);
}

}  // namespace
}  // namespace pw
