// Training by slices of sequences: the numbers of whole sequences up to rounding, those of the oracle exactly, and the
// predicted memory.
#include "tests/support/predicted_memory.h"
#include "tests/support/refusal.h"
#include "tests/support/whole_model.h"
#include "workloads/costs/slices.h"
#include "workloads/models/gpt.h"
#include "workloads/models/llama.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace pw {
namespace {

// A whole model in double that runs slice by slice: forwards ascend, backwards descend.
class SlicedModel {
public:
    SlicedModel(const Model& model, int slices, int samples, WholeModel& whole)
        : model_(cut_in_slices(model, slices)),
          split_(split_at(model_.layers, {})),
          program_(model_, split_, 0, kernels_, samples),
          places_(static_cast<std::size_t>(slices)),
          labels_(places_.size()),
          losses_(places_.size(), 0) {
        std::vector<LayerBytes> bytes;
        for (const int layer : program_.layers())
            bytes.push_back(program_.bytes_of(layer));
        const StageLayout layout =
            layout_stage(model_.layers, split_, 0, bytes, kernels_.data_bytes(model_.input, samples));
        const StageBytes sizes = stage_bytes(layout);
        program_.set_layout(layout);
        gradients = take(sizes.weights);
        std::byte* const workspace = take(std::max({sizes.forward_workspace, sizes.backward_workspace}))->get();
        const int rows = model_.input.height, all = rows * slices;
        for (int slice = 0; slice < slices; ++slice) {
            Places& own = places_[static_cast<std::size_t>(slice)];
            Block* const data = take(sizes.data);
            for (int sample = 0; sample < samples; ++sample)
                for (int row = 0; row < rows; ++row) {
                    const int at = sample * all + slice * rows + row;  // in the tokens of WholeModel
                    doubles(*data)[static_cast<std::size_t>(sample * rows + row)] =
                        doubles(*whole.data)[static_cast<std::size_t>(at)];
                    labels_[static_cast<std::size_t>(slice)].push_back((at * 3 + 1) % model.classes);
                }
            own.weights = whole.weights->get();
            own.gradients = gradients->get();
            own.data = data->get();
            own.until_input = take(sizes.until_input)->get();
            own.until_weight = take(sizes.until_weight)->get();
            own.slice_gradients = slice + 1 < slices ? take(sizes.keys_and_values)->get() : nullptr;
            own.workspace = workspace;
            own.labels = labels_[static_cast<std::size_t>(slice)];
            own.loss = &losses_[static_cast<std::size_t>(slice)];
            own.earlier.assign(places_.begin(), places_.begin() + slice);
        }
    }

    double loss() {
        double sum = 0;
        for (std::size_t slice = 0; slice < places_.size(); ++slice) {
            program_.forward(places_[slice], true);
            sum += losses_[slice];
        }
        return sum * kScale;
    }
    void backward() {
        for (auto own = places_.rbegin(); own != places_.rend(); ++own) {
            const bool begun = own != places_.rbegin();
            program_.backward(*own, kScale, {begun, begun}, true);
        }
    }

    Block* gradients;

private:
    static constexpr double kScale = 0.5;  // of WholeModel

    Block* take(Bytes bytes) {
        blocks_.push_back(std::make_unique<Block>(kernels_, std::max<Bytes>(bytes, 64), 0));
        return blocks_.back().get();
    }

    const HostKernels& kernels_ = reference_kernels_double();
    Model model_;
    StageSplit split_;
    StageProgram program_;
    std::vector<Places> places_;
    std::vector<std::vector<int>> labels_;
    std::vector<double> losses_;
    std::vector<std::unique_ptr<Block>> blocks_;
};

void expect_gradients_of_whole_sequences(const Model& model, int slices) {
    WholeModel whole(model, 2);
    SlicedModel sliced(model, slices, 2, whole);
    EXPECT_NEAR(sliced.loss(), whole.loss(), 1e-12);
    whole.backward();
    sliced.backward();
    double largest = 0;
    for (std::size_t i = 0; i < whole.parameters(); ++i) {
        const double expected = doubles(*whole.gradients)[i];
        ASSERT_NEAR(doubles(*sliced.gradients)[i], expected, 1e-12) << slices << ' ' << i;
        largest = std::max(largest, std::abs(expected));
    }
    EXPECT_GT(largest, 0.01);
}

TEST(Slices, HaveTheGradientsOfWholeSequences) {
    for (const int slices : {1, 2, 3, 6}) {
        for (const double dropout : {0.0, 0.25})
            expect_gradients_of_whole_sequences(
                build_gpt(
                    {.sequence_length = 6, .vocabulary = 7, .width = 8, .blocks = 2, .heads = 2, .dropout = dropout}),
                slices);
        expect_gradients_of_whole_sequences(build_llama({.sequence_length = 6,
                                                         .vocabulary = 7,
                                                         .width = 8,
                                                         .blocks = 2,
                                                         .heads = 4,
                                                         .key_value_heads = 2,
                                                         .inner = 6,
                                                         .rotary_base = 100}),
                                            slices);
    }
}

constexpr const char* kModels[] = {kSmallGpt, kSmallLlama};

std::vector<std::string> sliced_on(int devices, const std::string& backend, int slices) {
    return {fmt::format("cluster.devices={}", devices), "run.backend=" + backend, "pipeline.schedule=seq1f1b",
            fmt::format("pipeline.slices={}", slices), "training.steps=3"};
}

TEST(Slices, GiveTheNumbersOfTheirOracle) {
    for (const char* yaml : kModels)
        for (const char* backend : {"reference", "cpu", "emulated"})
            for (const int slices : {1, 2, 3})
                for (const char* receive : {"early", "deferred"}) {
                    const Execution execution(
                        yaml, with(sliced_on(2, backend, slices), {std::string("transfer.receive=") + receive}));
                    expect_equal(execution.run(guarded()), execution.oracle(),
                                 fmt::format("{} {} {}", backend, slices, receive));
                }
}

// In every split, also where queries, keys and values come from another stage, and on replicas of the pipeline.
TEST(Slices, GiveTheNumbersOfOneDevice) {
    for (const char* backend : {"reference", "cpu"}) {
        const RunResult whole = Execution(kSmallLlama, sliced_on(1, backend, 3)).run();
        for (const char* cut : {"model.layers.0.self_attn.core", "model.layers.1", "model.layers.1.mlp.up_proj"})
            expect_equal(
                Execution(kSmallLlama, with(sliced_on(2, backend, 3), {std::string("pipeline.split=[") + cut + "]"}))
                    .run(guarded()),
                whole, fmt::format("{} {}", backend, cut));
    }
    const Execution copies(kSmallLlama, with(sliced_on(4, "reference", 2), {"pipeline.replicas=2"}));
    expect_equal(copies.run(), copies.oracle(), "replicas");
}

// The losses of three steps depend on all gradients of the first two.
TEST(Slices, TrainAsWholeSequencesDo) {
    for (const char* yaml : kModels)
        for (const char* backend : {"reference", "cpu"}) {
            const RunResult whole = Execution(yaml, {"cluster.devices=2", "pipeline.schedule=1f1b", "training.steps=3",
                                                     std::string("run.backend=") + backend})
                                        .run();
            for (const int slices : {2, 3, 6}) {
                const RunResult run = Execution(yaml, sliced_on(2, backend, slices)).run();
                ASSERT_EQ(run.losses.size(), whole.losses.size());
                for (std::size_t step = 0; step < run.losses.size(); ++step) {
                    EXPECT_NEAR(run.losses[step], whole.losses[step], 2e-6 * whole.losses[step])
                        << backend << ' ' << slices << ' ' << step;
                    EXPECT_NEAR(run.gradient_norms[step], whole.gradient_norms[step], 2e-5 * whole.gradient_norms[step])
                        << backend << ' ' << slices << ' ' << step;
                }
            }
        }
}

// From a profile of whole micro-batches, byte for byte.
TEST(Slices, ReserveThePredictedMemory) {
    for (const char* model : {"gpt, blocks: 2", "llama, blocks: 2, key_value_heads: 1, inner: 96"}) {
        const std::string yaml = fmt::format(
            "workload: {{model: {}, sequence_length: 64, vocabulary: 32, embedding: 64, heads: 2}}\n"
            "pipeline: {{micro_batches: 4, micro_batch_size: 2}}\ntraining: {{steps: 1}}\nrun: {{backend: cpu}}\n",
            model);
        const Profile profile = measured(yaml.c_str(), 2);
        for (const int slices : {2, 4}) {
            const Execution execution(yaml.c_str(), sliced_on(2, "cpu", slices));
            const Job& job = execution.job();
            Costs costs = costs_of(*job.model, job.split, profile, 2);
            add_settings(costs, job.setup);
            cut_in_slices(costs, slice_ends(slices, 0));
            EXPECT_EQ(execution.run().arena, reserved_of(job.plan, costs, job.versions, job.setup.transfer))
                << model << ' ' << slices;
        }
    }
}

TEST(Slices, MayHaveASmallerLastMicroBatch) {
    const Execution execution(kSmallGpt, with(sliced_on(2, "cpu", 3), {"pipeline.mini_batch=7"}));
    expect_equal(execution.run(guarded()), execution.oracle(), "a last micro-batch of 1");
}

TEST(Slices, AreNotRunByCuda) {
    const Execution execution(kSmallGpt, sliced_on(2, "cuda", 2));
    expect_says(refusal([&] { execution.oracle(); }), {"whole micro-batches", "slices: 1"});
}

}  // namespace
}  // namespace pw
