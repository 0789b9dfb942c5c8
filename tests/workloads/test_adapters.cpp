// Transformers with adapters of low rank, against hand counts.
#include "tests/support/transformer_jobs.h"
#include "workloads/models/frozen_layers.h"
#include "workloads/transformers/transformer_model.h"

#include <gtest/gtest.h>

#include <string>

namespace pw {
namespace {

constexpr double kTokens = 4096, kHidden = 4096, kFfn = 14'336, kQkv = (32 + 2 * 8) * 128, kRank = 8;

// Llama 3 8B on A100s.
TransformerJob job_with(std::optional<Lora> lora, int tensor = 1) {
    TransformerJob job = job_on_host("a100-sxm-80", "nvlink3");
    job.model = *find_transformer("llama-3-8b");
    job.tokens = static_cast<int>(kTokens);
    job.parallel.tensor = tensor;
    job.lora = std::move(lora);
    return job;
}

const Lora kOfQkv{8, {LoraTarget::Qkv}}, kOfAll{8};

std::vector<TransformerLayerCost> layers_of(const TransformerJob& job) { return TransformerLayers(job).all(1); }

double seconds_of(const PassParts& parts) {
    double sum = 0;
    for (const auto& [name, seconds] : kPassParts)
        sum += parts.*seconds;
    return sum;
}

// rank x (inputs + outputs) of each matrix, divided among the tensor ranks.
TEST(Adapters, AreTheOnlyTrainedParameters) {
    const double all = kRank * ((kHidden + kQkv) + (kHidden + kHidden) + (kHidden + 2 * kFfn) + (kFfn + kHidden));
    for (const int tensor : {1, 4}) {
        const TransformerLayerCost whole = layers_of(job_with({}, tensor))[1];
        const TransformerLayerCost qkv = layers_of(job_with(kOfQkv, tensor))[1];
        EXPECT_EQ(qkv.parameters.dense, kRank * (kHidden + kQkv) / tensor);
        EXPECT_EQ(layers_of(job_with(kOfAll, tensor))[1].parameters.dense, all / tensor);
        EXPECT_EQ(qkv.frozen.dense, whole.parameters.dense);
        EXPECT_EQ(whole.frozen.dense, 0);
    }
    for (const std::size_t end : {0, 33})
        EXPECT_EQ(layers_of(job_with(kOfQkv))[end].parameters.dense, 0);
}

// An input of a frozen matrix is not saved: 4096 tokens of two bytes of the norm's output before fc1 and of the input
// of fc2. What an adapter has between its matrices is.
TEST(Adapters, SaveTheInputsOfTheirMatricesAlone) {
    const double whole = layers_of(job_with({}))[1].saved, middle = 2 * kTokens * kRank;
    EXPECT_NEAR(layers_of(job_with(kOfQkv))[1].saved, whole - 2 * kTokens * (kHidden + kFfn) + middle, 1);
    EXPECT_NEAR(layers_of(job_with(kOfAll))[1].saved, whole + 4 * middle, 1);
}

// The products of a frozen block are its forward and the gradients of its inputs, two thirds of all, and the adapters'.
// They have 2 x 3 x rank / (inputs x outputs) of the work, at a lower rate.
TEST(Adapters, LeaveOutTheGradientsOfFrozenMatrices) {
    const TransformerLayerCost whole = layers_of(job_with({}))[1], qkv = layers_of(job_with(kOfQkv))[1];
    EXPECT_NEAR(qkv.parts.products / whole.parts.products, 2.0 / 3, 0.07);
    EXPECT_GT(qkv.backward_weight, 0);
    EXPECT_LT(qkv.backward_weight, 0.05 * whole.backward_weight);
    EXPECT_GT(qkv.forward, whole.forward);
    EXPECT_GT(layers_of(job_with(kOfAll))[1].forward, qkv.forward);
}

// Nothing before the embedding is trained. The head passes gradients on.
TEST(Adapters, NeedABackwardOfTheHeadButNotOfTheEmbedding) {
    const std::vector<TransformerLayerCost> layers = layers_of(job_with(kOfQkv));
    EXPECT_EQ(layers.front().backward_input, 0);
    EXPECT_EQ(layers.front().backward_weight, 0);
    EXPECT_EQ(layers.back().backward_weight, 0);
    EXPECT_GT(layers.back().backward_input, 0);
    for (const TransformerLayerCost& layer : layers)
        EXPECT_NEAR(seconds_of(layer.parts), layer.forward + layer.backward_input + layer.backward_weight,
                    1e-9 * layer.forward);
    const Model model = transformer_model(job_with(kOfQkv), 1).model;
    EXPECT_FALSE(has_backward(model.layers[0]));
    EXPECT_TRUE(model.layers[1].weight_pass);
    EXPECT_TRUE(model.layers[33].input_pass && !model.layers[33].weight_pass);
}

// By hand: 8.03e9 parameters of two bytes, and 2 + 4 + 12 bytes for each of the 2 621 440 of the adapters. ZeRO-1
// divides their states.
TEST(Adapters, KeepNoGradientsOfFrozenParameters) {
    for (const int zero : {0, 1}) {
        TransformerJob job = job_with(kOfQkv);
        job.fabric.between = find_named_link("hdr200")->link;
        job.parallel.data = 4;
        job.parallel.zero = zero;
        job.parallel.release = Release::Megatron2022;  // gradients in fp32
        const ProfiledModel made = transformer_model(job, 1);
        const StageSplit split = split_even(made.model.layers, 1);
        Costs costs = costs_of(made.model, split, made.profile, 1);
        add_replicas(costs, {{job}}, split, 1);
        const double trained = 32 * kRank * (kHidden + kQkv);
        EXPECT_EQ(trained, 2'621'440);
        const StageBytes& bytes = costs.bytes[0];
        EXPECT_NEAR(static_cast<double>(bytes.frozen), 2 * 8.03e9, 1e7);
        EXPECT_NEAR(static_cast<double>(bytes.weights), 2 * trained, 64 * 34);
        EXPECT_NEAR(static_cast<double>(bytes.training->gradients), 4 * trained, 64);
        EXPECT_NEAR(static_cast<double>(bytes.training->states), 12 * trained / (zero == 1 ? 4 : 1), 64);
    }
}

}  // namespace
}  // namespace pw
