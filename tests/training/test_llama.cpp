// A decoder of the LLaMA family: its gradients as a whole, and its training on pipelines.
#include "schedules/orders/schedule.h"
#include "tests/support/predicted_memory.h"
#include "tests/support/thoroughness.h"
#include "tests/support/whole_model.h"
#include "workloads/models/llama.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace pw {
namespace {

const LlamaShape kTinyLlama{.sequence_length = 4,
                            .vocabulary = 5,
                            .width = 8,
                            .blocks = 2,
                            .heads = 4,
                            .key_value_heads = 2,
                            .inner = 6,
                            .rotary_base = 100};

TEST(Llama, GradientsAreDerivatives) { expect_gradients_are_derivatives(build_llama(kTinyLlama)); }

TEST(Llama, BackwardInTwoPartsIsTheBackward) { expect_backward_in_two_is_the_backward(build_llama(kTinyLlama)); }

std::vector<std::string> llama_on(int devices, const char* backend, std::string_view schedule) {
    return {fmt::format("cluster.devices={}", devices), fmt::format("run.backend={}", backend),
            fmt::format("pipeline.schedule={}", schedule)};
}

TEST(LlamaRun, EveryScheduleEqualsItsOracle) {
    OneIn some(3);
    for (const char* backend : {"reference", "cpu"})
        for (const Schedule& schedule : schedules())
            for (const char* optimizer : {"sgd", "adamw"}) {
                if (!some.picks())
                    continue;
                const Execution execution(kSmallLlama,
                                          with(llama_on(2, backend, schedule.name),
                                               {"training.steps=3", fmt::format("training.optimizer={}", optimizer)}));
                expect_equal(execution.run(), execution.oracle(),
                             fmt::format("{} {} {}", backend, schedule.name, optimizer));
            }
}

// The cuts are between queries and keys, where the norm's output crosses too; where queries, keys and values cross
// together; where gate and factor do; inside a residual branch; between blocks; and at the end.
constexpr const char* kCuts[] = {"model.layers.0.self_attn.k_proj",
                                 "model.layers.0.self_attn.v_proj",
                                 "model.layers.0.self_attn.q_rotary",
                                 "model.layers.0.self_attn.core",
                                 "model.layers.1.mlp.up_proj",
                                 "model.layers.1.mlp.act",
                                 "model.layers.0.post_attention_layernorm",
                                 "model.layers.1",
                                 "lm_head"};

// Three layers read the output of the first norm of a block. Their gradients are summed alike in every split, unless
// the first two alone are in its stage: then only `layer` sums them alike.
TEST(LlamaRun, SameNumbersForEverySplit) {
    for (const char* backend : {"reference", "cpu"}) {
        const RunResult whole = Execution(kSmallLlama, llama_on(1, backend, "naive")).run();
        for (const std::string cut : kCuts)
            for (const char* schedule : {"1f1b", "zb-h1"}) {
                std::vector<std::string> set = with(llama_on(2, backend, schedule), {"pipeline.split=[" + cut + "]"});
                if (cut.ends_with("v_proj"))
                    set.push_back("run.fan_out_gradients=layer");
                expect_equal(Execution(kSmallLlama, set).run(guarded()), whole,
                             fmt::format("{} {} {}", backend, cut, schedule));
            }
    }
}

TEST(LlamaRun, EqualsItsOracleForEverySplit) {
    for (const char* cut : kCuts)
        for (const char* schedule : {"1f1b", "zb-h1", "pipedream-2bw"}) {
            const Execution execution(kSmallLlama,
                                      with(llama_on(2, "cpu", schedule), {fmt::format("pipeline.split=[{}]", cut)}));
            expect_equal(execution.run(), execution.oracle(), fmt::format("{} {}", cut, schedule));
        }
}

TEST(LlamaRun, EqualsItsOracleOnEightDevices) {
    const Execution execution(kSmallLlama, with(llama_on(8, "reference", "1f1b"), {"pipeline.split=even"}));
    expect_equal(execution.run(), execution.oracle(), "even");
}

TEST(LlamaRun, RecomputedStagesGiveTheSameNumbers) {
    for (const char* schedule : {"1f1b", "zb-h1"})
        for (const char* cut : {"model.layers.0.self_attn.core", "model.layers.1.mlp.act"}) {
            const std::vector<std::string> set =
                with(llama_on(2, "cpu", schedule), {fmt::format("pipeline.split=[{}]", cut)});
            expect_equal(Execution(kSmallLlama, with(set, {"pipeline.recompute=all"})).run(),
                         Execution(kSmallLlama, set).run(), fmt::format("{} {}", schedule, cut));
        }
}

TEST(LlamaRun, ReplicatedStagesEqualTheirOracle) {
    for (const char* replicas : {"[2, 1]", "[1, 3]", "[2, 2]"})
        for (const char* backend : {"reference", "cpu"})
            for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
                const Execution execution(
                    kSmallLlama, {fmt::format("run.backend={}", backend), fmt::format("pipeline.schedule={}", schedule),
                                  fmt::format("pipeline.replicas={}", replicas), "training.clip_norm=0.5",
                                  "pipeline.split=[model.layers.0.self_attn.core]"});
                expect_equal(execution.run(), execution.oracle(), fmt::format("{} {} {}", replicas, backend, schedule));
            }
}

TEST(LlamaRun, ComputesAlikeOnAnyNumberOfThreads) {
    const auto on_threads = [](int threads) {
        return Execution(kSmallLlama,
                         with(llama_on(1, "cpu", "gpipe"),
                              {fmt::format("run.threads_per_device={}", threads), "workload.sequence_length=33"}))
            .run();
    };
    expect_equal(on_threads(3), on_threads(1), "three threads");
}

TEST(LlamaRun, CpuAgreesWithTheReference) {
    const RunResult reference = Execution(kSmallLlama, llama_on(1, "reference", "naive")).run(),
                    cpu = Execution(kSmallLlama, llama_on(1, "cpu", "naive")).run();
    ASSERT_EQ(reference.losses.size(), cpu.losses.size());
    for (std::size_t step = 0; step < cpu.losses.size(); ++step) {
        EXPECT_NEAR(cpu.losses[step], reference.losses[step], 1e-5 * reference.losses[step]);
        EXPECT_NEAR(cpu.gradient_norms[step], reference.gradient_norms[step], 1e-4 * reference.gradient_norms[step]);
    }
}

TEST(LlamaRun, CountedMemoryIsThePredictedOne) {
    for (const char* backend : {"reference", "cpu"}) {
        const Profile profile = measured(Execution(kSmallLlama, llama_on(1, backend, "naive")), 2);
        for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
            for (const char* cut : kCuts)
                expect_predicted_memory(
                    kSmallLlama,
                    with(llama_on(2, backend, schedule), {"training.steps=1", fmt::format("pipeline.split=[{}]", cut)}),
                    profile);
    }
}

// The loss begins near the logarithm of the vocabulary; the synthetic text has 1.21 nats per token.
TEST(LlamaRun, LearnsTheSyntheticText) {
    const RunResult run =
        Execution(kSmallLlama, with(llama_on(2, "cpu", "1f1b"),
                                    {"training.steps=150", "workload.sequence_length=16", "workload.vocabulary=24",
                                     "workload.embedding=32", "workload.inner=88", "pipeline.micro_batch_size=8",
                                     "training.clip_norm=1"}))
            .run();
    EXPECT_NEAR(run.losses.front(), std::log(24.0), 0.05);
    EXPECT_LT(std::accumulate(run.losses.end() - 5, run.losses.end(), 0.0) / 5, 1.9);
}

}  // namespace
}  // namespace pw
