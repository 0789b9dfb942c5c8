// Runs with every weight policy, with and without predicted weights, against their sequential oracles.
#include "tests/support/execution.h"
#include "tests/support/layer_rig.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace pw {
namespace {

// Name -> settings for three stages.
std::map<std::string, std::vector<std::string>> policies() {
    const auto pipedream = [](const std::string& weights, const std::string& prediction = "none") {
        return std::vector<std::string>{"pipeline.schedule=pipedream", "pipeline.weights=" + weights,
                                        "pipeline.prediction=" + prediction};
    };
    return {{"flush", {"pipeline.schedule=1f1b"}},
            {"double_buffer", {"pipeline.schedule=pipedream-2bw"}},
            {"stash", pipedream("stash")},
            {"vertical_sync", pipedream("vertical_sync")},
            {"latest", pipedream("latest")},
            {"spectrain", pipedream("latest", "spectrain")},
            {"pipeoptim", pipedream("latest", "pipeoptim")},
            {"pipemare", {"pipeline.schedule=pipemare"}}};
}

Execution execution_of(const std::vector<std::string>& policy, int steps, const std::vector<std::string>& more) {
    return Execution(kMlp, with(with(policy, {"cluster.devices=3", fmt::format("training.steps={}", steps)}), more));
}

bool predicts(const std::string& policy) { return policy == "spectrain" || policy == "pipeoptim"; }

// Whether a mini-batch has all micro-batches of a step.
bool is_per_step(const std::string& policy) {
    return policy == "flush" || policy == "double_buffer" || policy == "pipemare";
}

TEST(Policies, EqualTheirOraclesOverTwentySteps) {
    for (const char* backend : {"reference", "cpu"}) {
        std::map<std::string, std::string> hashes;
        for (const std::string optimizer : {"sgd", "adamw"})
            for (const auto& [name, policy] : policies()) {
                if (optimizer == "adamw" && predicts(name))
                    continue;
                const Execution execution = execution_of(
                    policy, 20, {fmt::format("run.backend={}", backend), "training.optimizer=" + optimizer});
                const RunResult run = execution.run();
                EXPECT_EQ(run.losses.size(), is_per_step(name) ? 20u : 80u);
                const std::string what = fmt::format("{} with {} on {}", name, optimizer, backend);
                expect_equal(run, execution.oracle(), what);
                EXPECT_TRUE(hashes.try_emplace(run.weights_hash, what).second)
                    << what << " is " << hashes[run.weights_hash];
            }
    }
}

// A micro-batch is a mini-batch. On one device every version is used at once, so that the number of an update is all
// that could differ from a plan whose every step is a mini-batch.
TEST(Policies, CountTheUpdatesOfAStage) {
    const std::vector<std::string> adamw{"training.optimizer=adamw", "cluster.devices=1"};
    const RunResult steps = Execution(kMlp, with(adamw, {"pipeline.micro_batches=1", "training.steps=12"})).run();
    for (const char* weights : {"stash", "latest"}) {
        const RunResult run =
            Execution(kMlp, with(adamw, {"pipeline.schedule=pipedream", fmt::format("pipeline.weights={}", weights),
                                         "pipeline.micro_batches=4", "training.steps=3"}))
                .run();
        expect_equal(run, steps, weights);
    }
}

TEST(Prediction, NeedsAMomentum) {
    for (const char* name : {"spectrain", "pipeoptim"})
        expect_says(refusal([&] { (void)execution_of(policies()[name], 1, {"training.optimizer=adamw"}); }),
                    {fmt::format("{} predicts weights from a momentum, and optimizer adamw has none", name),
                     "leave pipeline.prediction out, or write training.optimizer: sgd"});
}

TEST(Policies, OfEmulatedDevicesEqualTheirOraclesToo) {
    for (const auto& [name, policy] : policies()) {
        const Execution execution = execution_of(policy, 2, {"run.backend=emulated"});
        expect_equal(execution.run(), execution.oracle(), name);
    }
}

TEST(Prediction, OfRecomputedStagesGivesTheSameNumbers) {
    for (const char* name : {"spectrain", "pipeoptim", "pipemare"}) {
        const RunResult kept = execution_of(policies()[name], 4, {}).run();
        expect_equal(execution_of(policies()[name], 4, {"pipeline.recompute=all"}).run(), kept, name);
    }
}

TEST(Prediction, WithoutMomentumIsTheLatestVersion) {
    for (const char* backend : {"reference", "cpu"}) {
        const std::vector<std::string> plain{fmt::format("run.backend={}", backend), "training.momentum=0"};
        const RunResult latest = execution_of(policies()["latest"], 5, plain).run();
        for (const char* name : {"spectrain", "pipeoptim"})
            expect_equal(execution_of(policies()[name], 5, plain).run(), latest,
                         fmt::format("{} on {}", name, backend));
    }
}

// Before its first update a stage has no momentum; on stage 1 the F of micro-batch 2 is the first one after an
// update.
TEST(Prediction, StartsWithTheFirstUpdate) {
    const auto losses = [](const char* name) { return execution_of(policies()[name], 2, {}).run().losses; };
    const std::vector<double> latest = losses("latest"), predicted = losses("pipeoptim");
    for (int k = 0; k < 2; ++k)
        EXPECT_EQ(predicted[k], latest[k]) << k;
    EXPECT_NE(predicted[2], latest[2]);
}

// A single stage always has the latest version.
TEST(Prediction, OfOneStageIsTheLatestVersion) {
    const auto run = [](const char* prediction) {
        return Execution(kMlp, {"pipeline.schedule=pipedream", "pipeline.weights=latest", "cluster.devices=1",
                                fmt::format("pipeline.prediction={}", prediction)})
            .run();
    };
    expect_equal(run("spectrain"), run("none"), "spectrain");
    expect_equal(run("pipeoptim"), run("none"), "pipeoptim");
}

// For a constant gradient g, v(n) = g (1 - m^n) / (1 - m) and w(n) = w(0) - rate (v(1) + ... + v(n)). The
// prediction for s updates later continues with v(n): it is s rate v(n) below w(n), and for m = 0 it is w(n + s).
TEST(Prediction, ContinuesWithTheMomentum) {
    constexpr float kStart = 2, kGradient = 0.25f;
    constexpr Bytes kBytes = 16 * sizeof(float);
    for (const HostKernels* kernels : {&reference_kernels(), &cpu_kernels()})
        for (const double momentum : {0.0, 0.5}) {
            AlignedBytes w(kBytes), g(kBytes), v(kBytes), out(kBytes);
            const auto values = [](AlignedBytes& block) { return reinterpret_cast<float*>(block.get()); };
            std::fill_n(values(w), 16, kStart);
            std::fill_n(values(g), 16, kGradient);
            std::fill_n(values(v), 16, 0.0f);
            const Sgd sgd{.learning_rate = 0.125, .momentum = momentum, .weight_decay = 0};
            double velocity = 0, weight = kStart;
            for (int n = 1; n <= 4; ++n) {
                kernels->update(sgd, w.get(), g.get(), {v.get()}, w.get(), kBytes);
                velocity = kGradient * (1 - std::pow(momentum, n)) / (1 - momentum);
                weight -= sgd.learning_rate * velocity;
            }
            kernels->predict(w.get(), v.get(), 3 * sgd.learning_rate, out.get(), kBytes);
            for (int k = 0; k < 16; ++k) {
                EXPECT_EQ(values(out)[k], static_cast<float>(weight - 3 * sgd.learning_rate * velocity));
                EXPECT_EQ(values(w)[k], static_cast<float>(weight));
            }
        }
}

TEST(Prediction, TakesThePredictedMemory) {
    for (const char* name : {"latest", "spectrain", "pipeoptim", "pipemare"})
        for (const char* recompute : {"none", "all"}) {
            const Execution execution =
                execution_of(policies()[name], 1, {fmt::format("pipeline.recompute={}", recompute)});
            const Job job = execution.job();
            const auto memory = memory_of(job.plan, buffers_of(job.plan, job.costs, job.versions));
            const RunResult run = pw::run(job, {});
            for (int device = 0; device < 3; ++device)
                for (const MemoryKind kind : {MemoryKind::Weights, MemoryKind::StashedWeights, MemoryKind::Optimizer})
                    EXPECT_EQ(run.peak[device][static_cast<int>(kind)], peak_of(memory[device])[static_cast<int>(kind)])
                        << fmt::format("{}, {} recomputed, device {}", name, recompute, device);
        }
}

// A measured trace has the version from which weights were predicted.
TEST(Prediction, AppearsInTheTrace) {
    const Execution execution = execution_of(policies()["spectrain"], 2, {});
    const VersionTable versions = execution.job().versions;
    for (const TraceEvent& event : execution.run().trace.events)
        EXPECT_EQ(event.ahead, ahead_of(event.task, versions));
}

}  // namespace
}  // namespace pw
