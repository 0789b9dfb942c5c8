// The keys of types for models of layers, uniform workloads and files, against counts by hand.
#include "job/job.h"
#include "schedules/memory/held.h"
#include "tests/support/config_text.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pw {
namespace {

Job job_of(const std::string& training, const std::string& model = "{model: mlp, image_size: 8, hidden: [50]}") {
    Notices notices;
    return make_job(load(fmt::format(R"({{workload: {}, cluster: {{devices: 3, compute: 1 TFLOP/s,
      memory_bandwidth: 1 GB/s, link: {{bandwidth: 1 GB/s, latency: 0 s}}}},
      pipeline: {{schedule: 1f1b, stages: 1, replicas: 3, micro_batches: 3, micro_batch_size: 1}}, training: {{{}}}}})",
                                     model, training)),
                    notices);
}

HeldState held_of(const Job& job) { return held_state_of(0, 3, job.costs); }

void expect_held(const HeldState& held, Bytes weights, Bytes gradients, Bytes states) {
    EXPECT_EQ(held.weights, weights);
    EXPECT_EQ(held.gradients, gradients);
    EXPECT_EQ(held.states, states);
}

}  // namespace

// A stage of 64 kB: 16000 parameters in fp32. Parts of three replicas are multiples of 64 bytes of weights: 10688 bytes
// of 32000 are 5344 parameters.
TEST(KeptTypes, OfAUniformStage) {
    const std::string stage = "{model: uniform, stages: 1, weights: 64 kB}";
    const auto held = [&](const std::string& training) { return held_of(job_of(training, stage)); };
    expect_held(held("optimizer: adamw"), 64'000, 64'000, 128'000);
    expect_held(held("optimizer: adamw, gradient_type: fp32"), 64'000, 64'000, 128'000);
    expect_held(held("optimizer: adamw-8bit"), 64'000, 64'000, 32'000);
    expect_held(held("optimizer: adamw-bf16"), 32'000, 32'000, 64'000);
    expect_held(held("optimizer: adamw, weight_type: bf16, master_type: fp32"), 32'000, 64'000, 192'000);
    expect_held(held("optimizer: sgd, momentum_type: bf16"), 64'000, 64'000, 32'000);
    expect_held(held("optimizer: adamw-bf16, zero: 1"), 32'000, 32'000, 5344 * 4);
    expect_held(held("optimizer: adamw-bf16, zero: 2"), 32'000, 5344 * 2, 5344 * 4);
    expect_held(held("optimizer: adamw-bf16, zero: 3"), 5344 * 2, 5344 * 2, 5344 * 4);
    expect_held(held("optimizer: adamw, weight_type: bf16, master_type: fp32, zero: 1"), 32'000, 64'000, 5344 * 12);
}

// Linear layers of 8 x 8 x 3 inputs and 50 outputs, and of 50 inputs and 10 outputs: 9650 and 510 parameters in blocks
// of a multiple of 64 bytes.
TEST(KeptTypes, OfALayerGraphFollowItsParameters) {
    const std::string mlp = "optimizer: adamw";
    const auto aligned_to = [](Bytes bytes) { return (bytes + 63) / 64 * 64; };
    Bytes parameters = 0, in_fp32 = 0, in_bf16 = 0;
    const Job usual = job_of(mlp);
    for (std::size_t layer = 0; layer < num_vertices(usual.model->layers); ++layer) {
        const Bytes count = usual.model->layers[layer].parameters;
        parameters += count;
        in_fp32 += aligned_to(4 * count);
        in_bf16 += aligned_to(2 * aligned_to(4 * count) / 4);
    }
    ASSERT_GT(parameters, 0);
    expect_held(held_of(usual), in_fp32, in_fp32, 2 * in_fp32);
    expect_held(held_of(job_of("optimizer: adamw-bf16")), in_bf16, in_bf16, 2 * in_bf16);
    expect_held(held_of(job_of("optimizer: adamw-8bit")), in_fp32, in_fp32, in_fp32 / 2);
    // U of analytic costs moves 4 x 7 bytes of each parameter at 1 GB/s, in 8 bits 4 + 4 + 8 bytes, in bf16 2 x 7.
    const auto update = [&](const std::string& training) { return job_of(training).costs.stage[0].update; };
    const auto layers = static_cast<double>(num_vertices(usual.model->layers));
    EXPECT_NEAR(static_cast<double>(update(mlp)), 28.0 * static_cast<double>(parameters), layers);
    EXPECT_NEAR(static_cast<double>(update("optimizer: adamw-8bit")), 16.0 * static_cast<double>(parameters), layers);
    EXPECT_NEAR(static_cast<double>(update("optimizer: adamw-bf16")), 14.0 * static_cast<double>(parameters), layers);
    // S sends gradients, and the gather at the end of U the weights.
    EXPECT_EQ(job_of(mlp).costs.stage_sums[0].bytes, in_fp32);
    EXPECT_EQ(job_of(mlp + ", gradient_type: bf16").costs.stage_sums[0].bytes, in_fp32 / 2);
    EXPECT_EQ(job_of("optimizer: adamw-bf16, zero: 1").costs.stage_gathers[0].bytes, in_bf16);
}

TEST(KeptTypes, RefuseAnOptimizerOfMatricesWithoutShapes) {
    expect_says(refusal([] { job_of("optimizer: muon"); }),
                {"only transformers say which parameters are matrices", "optimizer: adamw"});
}

}  // namespace pw
