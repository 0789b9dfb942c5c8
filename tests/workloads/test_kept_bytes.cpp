// What training keeps of each parameter, counted by hand.
#include "workloads/models/kept_bytes.h"
#include "workloads/transformers/transformer_model.h"

#include "tests/support/transformer_jobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace pw {
namespace {

// Llama 3 8B: 32 blocks of 4096 x (2 x 4096 + 2 x 1024 + 3 x 14336) numbers in matrices and two norms of 4096, two
// tables of 128256 x 4096, and a norm.
constexpr double kMatrices = 32.0 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14'336);
constexpr double kOthers = 2.0 * 128'256 * 4096 + (2 * 32 + 1) * 4096.0;
constexpr double kAll = 8'030'261'248;  // as its model card says

TransformerJob llama(OptimizerKind optimizer, int replicas = 1, int zero = 0) {
    TransformerJob job = job_on_host("h100-sxm-80", "nvlink4");
    job.model = *find_transformer("llama-3-8b");
    job.tokens = 512;
    job.parallel.data = replicas;
    job.parallel.zero = zero;
    job.parallel.release = Release::NeMo2024;
    job.optimizer = optimizer;
    return job;
}

struct Trained {
    StageBytes bytes;
    StageParts parts;
};

Trained trained(const TransformerJob& job) {
    const ProfiledModel model = transformer_model(job, 1);
    const StageSplit split = split_even(model.model.layers, 1);
    Costs costs = costs_of(model.model, split, model.profile, 1);
    const std::vector<StageParts> parts = stage_parts(job, split, costs.stage, 1);
    add_replicas(costs, {{job}}, split, 1);
    return {costs.bytes[0], parts[0]};
}

// The sizes of 34 layers are rounded up, to 64 bytes each.
void expect_keeps(const TransformerJob& job, double weights, double gradients, double states) {
    const StageBytes bytes = trained(job).bytes;
    EXPECT_NEAR(static_cast<double>(bytes.weights), weights, 34 * 64);
    EXPECT_EQ(static_cast<double>(bytes.training->gradients), std::ceil(gradients));
    EXPECT_EQ(static_cast<double>(bytes.training->states), std::ceil(states));
}

}  // namespace

static_assert(kMatrices + kOthers == kAll);

TEST(KeptBytes, OfAParameterAreThoseOfItsTypes) {
    const auto all_of = [](OptimizerKind optimizer, Precision precision, const KeptTypes& said = {}) {
        const KeptBytes kept = kept_bytes(said, precision, optimizer, 4);
        return std::array{kept.weight, kept.gradient, kept.master, kept.states};
    };
    using enum OptimizerKind;
    using Four = std::array<Bytes, 4>;
    EXPECT_EQ(all_of(AdamW, Precision::Fp32), (Four{4, 4, 0, 8}));
    EXPECT_EQ(all_of(Sgd, Precision::Fp32), (Four{4, 4, 0, 4}));
    EXPECT_EQ(all_of(AdamW, Precision::Bf16), (Four{2, 4, 4, 8}));      // 18 bytes
    EXPECT_EQ(all_of(AdamW8Bit, Precision::Bf16), (Four{2, 4, 4, 2}));  // 12
    EXPECT_EQ(all_of(AdamWBf16, Precision::Bf16), (Four{2, 2, 0, 4}));  // 8
    EXPECT_EQ(all_of(Muon, Precision::Bf16), (Four{2, 4, 4, 4}));       // 14 of a matrix
    EXPECT_EQ(kept_bytes({}, Precision::Bf16, Muon, 4, ParameterForm::Other).states, 8);
    EXPECT_EQ(all_of(AdamW8Bit, Precision::Bf16, {.variance = NumberType::Fp32}), (Four{2, 4, 4, 5}));
    // DeepSeek-V3 (arXiv 2412.19437, section 3.3.3): master weights and gradients in fp32, both averages in bf16.
    const KeptTypes deepseek{.momentum = NumberType::Bf16, .variance = NumberType::Bf16};
    EXPECT_EQ(all_of(AdamW, Precision::Fp8, deepseek), (Four{2, 4, 4, 4}));
}

TEST(KeptBytes, OfLlamaByOptimizer) {
    using enum OptimizerKind;
    expect_keeps(llama(AdamW), 2 * kAll, 4 * kAll, 12 * kAll);
    expect_keeps(llama(AdamW8Bit), 2 * kAll, 4 * kAll, 6 * kAll);
    expect_keeps(llama(AdamWBf16), 2 * kAll, 2 * kAll, 4 * kAll);
    expect_keeps(llama(Muon), 2 * kAll, 4 * kAll, 8 * kMatrices + 12 * kOthers);
    TransformerJob sums_in_bf16 = llama(AdamW);
    sums_in_bf16.types.gradients = NumberType::Bf16;
    expect_keeps(sums_in_bf16, 2 * kAll, 2 * kAll, 12 * kAll);
    TransformerJob as_megatron = llama(AdamW);  // main params in fp16, averages in fp8 and fp16
    as_megatron.types = {.master = MasterType::Fp16, .momentum = NumberType::Fp8, .variance = NumberType::Fp16};
    expect_keeps(as_megatron, 2 * kAll, 4 * kAll, 5 * kAll);
}

// Seven replicas, and their sevenths. The release divides gradients in bf16 with ZeRO-2 and 3, unless a type is said.
TEST(KeptBytes, AreDividedAmongSevenReplicas) {
    for (const int zero : {0, 1, 2, 3}) {
        const auto divided = [&](double bytes, int since) { return zero >= since ? bytes / 7 : bytes; };
        const double usual = zero >= 2 ? 2 : 4;
        using enum OptimizerKind;
        expect_keeps(llama(AdamW8Bit, 7, zero), divided(2 * kAll, 3), divided(usual * kAll, 2), divided(6 * kAll, 1));
        expect_keeps(llama(AdamWBf16, 7, zero), divided(2 * kAll, 3), divided(2 * kAll, 2), divided(4 * kAll, 1));
        TransformerJob muon = llama(Muon, 7, zero);
        muon.types.gradients = NumberType::Fp32;
        const StageBytes bytes = trained(muon).bytes;
        EXPECT_EQ(static_cast<double>(bytes.training->gradients), std::ceil(divided(4 * kAll, 2)));
        EXPECT_NEAR(static_cast<double>(bytes.training->states), divided(8 * kMatrices + 12 * kOthers, 1), 1);
    }
}

// Bytes of a parameter that U moves: the norm reads the gradient (g), the update reads gradient, master and states and
// writes master, states and weight, and the gradient is set to zero.
TEST(KeptBytes, TakeTheTimeOfTheirBytesInAnUpdate) {
    using enum OptimizerKind;
    const auto seconds = [](OptimizerKind optimizer) { return trained(llama(optimizer)).parts.update; };
    const double of_a_byte = seconds(AdamW) / (4 + 4 + 2 * 4 + 2 * 8 + 2 + 4) / kAll;
    EXPECT_NEAR(of_a_byte, 1 / (0.75 * 3.35e12), 0.2 / (0.75 * 3.35e12));  // of an H100's memory
    EXPECT_NEAR(seconds(AdamW8Bit), of_a_byte * kAll * (4 + 4 + 2 * 4 + 2 * 2 + 2 + 4), 1e-9);
    EXPECT_NEAR(seconds(AdamWBf16), of_a_byte * kAll * (2 + 2 + 2 * 2 + 2 * 4 + 2), 1e-9);
    EXPECT_NEAR(seconds(Muon), of_a_byte * (kAll * (4 + 4 + 2 * 4 + 2 * 4 + 2 + 4) + kOthers * 2 * 4), 1e-9);
}

TEST(KeptBytes, AreSentAsTheyAreKept) {
    TransformerJob job = llama(OptimizerKind::AdamW, 7);
    job.parallel.overlap = Overlap{};
    const double in_fp32 = trained(job).parts.sums;
    job.types.gradients = NumberType::Bf16;
    const double in_bf16 = trained(job).parts.sums;
    EXPECT_NEAR(in_bf16 / in_fp32, 0.5, 0.01);
    job.parallel.zero = 1;
    const double weights_in_bf16 = trained(job).parts.gathers;
    job.types.weights = NumberType::Fp8;
    EXPECT_NEAR(trained(job).parts.gathers / weights_in_bf16, 0.5, 0.01);
    job.parallel.zero = 3;  // each layer gathers what it has not, 2 then 1 bytes
    const double gathered_in_fp8 = TransformerLayers(job).all(1)[1].gathered;
    job.types.weights = NumberType::Bf16;
    EXPECT_EQ(TransformerLayers(job).all(1)[1].gathered, 2 * gathered_in_fp8);
}

}  // namespace pw
