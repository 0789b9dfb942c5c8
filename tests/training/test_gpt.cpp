// GPT-2: its layers and parameters, its gradients as a whole, and its training on pipelines.
#include "exec/training/stage_program.h"
#include "tests/support/derivatives.h"
#include "tests/support/layer_of.h"
#include "tests/support/predicted_memory.h"
#include "tests/support/refusal.h"
#include "workloads/models/gpt.h"
#include "workloads/models/initial_parameters.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
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

TEST(Gpt2, CarriesThePublishedNames) {
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

TEST(Gpt2, HasDropoutsOnlyWhenAsked) {
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

TEST(Gpt2, StartsLikeThePublishedOne) {
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

// A whole model in double, with memory of its own.
class WholeModel {
public:
    WholeModel(const Model& model, int samples)
        : kernels_(reference_kernels_double()),
          split_(split_at(model.layers, {})),
          program_(model, split_, 0, kernels_, samples) {
        std::vector<LayerBytes> bytes;
        for (const int layer : program_.layers())
            bytes.push_back(program_.bytes_of(layer));
        const StageLayout layout =
            layout_stage(model.layers, split_, 0, bytes, kernels_.data_bytes(model.input, samples));
        const StageBytes sizes = stage_bytes(layout);
        weights = take(sizes.weights);
        gradients = take(sizes.weights);
        data = take(sizes.data);
        places_.weights = weights->get();
        places_.gradients = gradients->get();
        places_.statistics = take(sizes.statistics)->get();
        places_.data = data->get();
        places_.until_input = take(sizes.until_input)->get();
        places_.until_weight = take(sizes.until_weight)->get();
        places_.gradient_kept = take(sizes.gradient_kept)->get();
        places_.workspace = take(std::max({sizes.forward_workspace, sizes.backward_workspace, sizes.input_workspace,
                                           sizes.weight_workspace}))
                                ->get();
        places_.loss = &loss_;
        program_.set_layout(layout);
        const std::int64_t labels = std::int64_t{samples} * labels_per_sample(model);
        for (std::int64_t i = 0; i < labels; ++i) {
            doubles(*data)[static_cast<std::size_t>(i)] = static_cast<double>(i * 5 % model.classes);
            labels_.push_back(static_cast<int>((i * 3 + 1) % model.classes));
        }
        places_.labels = labels_;
        const std::vector<float> values = random_values(sizes.weights / Bytes{sizeof(double)}, 1, 0.7f);
        std::ranges::copy(values, doubles(*weights).begin());
    }

    double loss() {
        program_.forward(places_, true);
        return loss_ * kScale;
    }
    void backward() { program_.backward(places_, kScale, {}, true); }
    void backward_in_two() {
        program_.backward(places_, kScale, {}, false);
        program_.backward_weight(places_, {});
    }
    std::size_t parameters() const { return doubles(*weights).size(); }

    Block *weights, *gradients, *data;

private:
    static constexpr double kScale = 0.5;

    Block* take(Bytes bytes) {
        blocks_.push_back(std::make_unique<Block>(kernels_, std::max<Bytes>(bytes, 64), 0));
        return blocks_.back().get();
    }

    const HostKernels& kernels_;
    StageSplit split_;
    StageProgram program_;
    std::vector<std::unique_ptr<Block>> blocks_;
    std::vector<int> labels_;
    Places places_;
    double loss_ = 0;
};

const GptShape kTiny{.sequence_length = 4, .vocabulary = 5, .width = 4, .blocks = 2, .heads = 2};

TEST(Gpt2, GradientsAreDerivatives) {
    const Model model = build_gpt(kTiny);
    WholeModel whole(model, 2);
    whole.loss();
    whole.backward();
    double largest = 0;
    for (std::size_t i = 0; i < whole.parameters(); ++i) {
        const double expected = central_difference(doubles(*whole.weights)[i], [&] { return whole.loss(); });
        ASSERT_NEAR(doubles(*whole.gradients)[i], expected, 1e-8 + 1e-6 * std::abs(expected)) << i;
        largest = std::max(largest, std::abs(expected));
    }
    EXPECT_GT(largest, 0.01);
}

TEST(Gpt2, BackwardInTwoPartsIsTheBackward) {
    const Model model = build_gpt(kTiny);
    WholeModel one(model, 2), two(model, 2);
    EXPECT_EQ(one.loss(), two.loss());
    one.backward();
    two.backward_in_two();
    EXPECT_TRUE(std::ranges::equal(doubles(*one.gradients), doubles(*two.gradients)));
}

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

// Stages that share a table have to flush: here the last layer has one of its own.
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

// In the embedding, between q, k, v and attention, inside a residual branch, before the head.
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

// It starts at the logarithm of the vocabulary; the synthetic text has 1.21 nats per token.
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
