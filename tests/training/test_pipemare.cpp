// PipeMare's two corrections in runs: learning rates divided by delays, and backwards that go back to the weights of
// their forwards.
#include "exec/checkpoint/checkpoint_folder.h"
#include "exec/run_in_segments.h"
#include "exec/training/optimizer.h"
#include "tests/support/execution.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace pw {
namespace {

// A schedule on `devices`, with an update after every `per_update` micro-batches.
Execution on_devices(const char* schedule, int devices, int per_update, const std::vector<std::string>& more = {}) {
    return Execution(kMlp,
                     with({fmt::format("pipeline.schedule={}", schedule), fmt::format("cluster.devices={}", devices),
                           fmt::format("pipeline.micro_batches={}", per_update), "training.steps=12"},
                          more));
}

std::map<std::string, std::vector<float>> by_name(const std::vector<NamedTensor>& tensors) {
    std::map<std::string, std::vector<float>> all;
    for (const NamedTensor& tensor : tensors)
        all[tensor.name] = tensor.values;
    return all;
}

// The checkpoints after each step: the pipeline drains in between.
std::vector<Checkpoint> checkpoints_of(const Execution& execution) {
    const TemporaryFolder folder;
    const int steps = execution.job().setup.training.steps;
    RunOptions options;
    options.checkpoints = std::make_shared<CheckpointFolder>(folder.path(), steps, steps);
    options.checkpoint_every = 1;
    (void)run_in_segments(execution.job(), options, [](const Job& job) { return job; });
    std::vector<Checkpoint> all;
    for (int step = 1; step <= steps; ++step) {
        std::vector<std::string> left_out;
        all.push_back(find_checkpoint(folder.path(), left_out, step + 1).checkpoint);
        EXPECT_EQ(all.back().step, step);
    }
    return all;
}

// One stage with an update after every micro-batch is late by one update. Without any memory of earlier steps its B
// then goes back exactly to the weights of its F, which PipeDream-2BW keeps.
TEST(PipeMareRuns, GoBackToTheWeightsOfTheForward) {
    for (const char* backend : {"reference", "cpu"}) {
        const std::string on = fmt::format("run.backend={}", backend);
        const std::vector<double> stashed = on_devices("pipedream-2bw", 1, 1, {on}).run().losses;
        const auto losses = [&](double decay) {
            return on_devices("pipemare", 1, 1, {on, fmt::format("training.correction_decay={}", decay)}).run().losses;
        };
        const std::vector<double> corrected = losses(1e-9), kept = losses(0.999999);
        const std::vector<double> latest = on_devices("pipemare", 1, 1, {on, "pipeline.prediction=none"}).run().losses;
        double apart = 0;
        for (std::size_t k = 0; k < stashed.size(); ++k) {
            EXPECT_NEAR(corrected[k], stashed[k], 1e-5) << backend << " " << k;
            EXPECT_NEAR(kept[k], latest[k], 1e-5) << backend << " " << k;
            apart = std::max(apart, std::abs(latest[k] - stashed[k]));
        }
        EXPECT_GT(apart, 1e-4) << backend;
    }
}

// d = g d + (1 - g) (new - old), with g = decay^(1 / delay): stage 0 of two is late by 3 micro-batches, stage 1 by one.
TEST(PipeMareRuns, AverageTheStepsOfTheWeights) {
    for (const std::string optimizer : {"sgd", "adamw"}) {
        const std::vector<Checkpoint> all =
            checkpoints_of(on_devices("pipemare", 2, 2,
                                      {"training.optimizer=" + optimizer, "training.correction_decay=0.3",
                                       "pipeline.split=[fc2]", "training.steps=4"}));
        std::map<std::string, std::vector<double>> average;
        for (std::size_t step = 1; step < all.size(); ++step) {
            const auto old = by_name(all[step - 1].parameters), now = by_name(all[step].parameters);
            const auto before = by_name(all[step - 1].states), after = by_name(all[step].states);
            int compared = 0;
            for (const auto& [name, values] : now) {
                const double delay = name.starts_with("fc1") ? 1.5 : 0.5, kept = std::pow(0.3, 1 / delay);
                for (std::size_t k = 0; k < values.size(); ++k) {
                    const double expected = kept * before.at(name + ".delta")[k] +
                                            (1 - kept) * (static_cast<double>(values[k]) - old.at(name)[k]);
                    ASSERT_NEAR(after.at(name + ".delta")[k], expected, 2e-7) << name << " " << step;
                    compared += expected != 0 ? 1 : 0;
                }
            }
            EXPECT_GT(compared, 1000);
        }
    }
}

// Update k of a stage that is d updates late has the rate / d^(1 - k / K).
TEST(PipeMareRuns, DivideRatesByDelays) {
    const Execution four = on_devices("pipemare", 3, 1, {"training.anneal_steps=4", "pipeline.synchronous_steps=2"});
    const double delays[] = {5, 3, 1};
    for (int stage = 0; stage < 3; ++stage)
        for (int update = 1; update <= 9; ++update) {
            const int k = update - 3;  // the first two are synchronous
            const double power = k < 0 ? 0 : 1 - std::min(k / 4.0, 1.0);
            EXPECT_NEAR(rate_factor(four.job(), stage, update), std::pow(delays[stage], -power), 1e-12);
        }
    EXPECT_EQ(anneal_steps_of(on_devices("pipemare", 2, 1).job()), 3);  // a quarter of 12
    EXPECT_EQ(anneal_steps_of(on_devices("pipemare", 2, 1, {"pipeline.prediction=none"}).job()), 3);
    EXPECT_EQ(anneal_steps_of(on_devices("pipedream-2bw", 2, 2).job()), 0);
    const Execution many = on_devices("pipemare", 3, 8);  // late by less than an update
    EXPECT_EQ(rate_factor(many.job(), 1, 1), 1);
}

// The first update of stage 0 of two is a third of an undivided one; stage 1, late by one update, has the whole rate.
TEST(PipeMareRuns, UpdateWithTheDividedRate) {
    const auto first_update = [](int steps) {
        const RunResult run =
            on_devices("pipemare", 2, 1,
                       {fmt::format("training.anneal_steps={}", steps), "pipeline.split=[fc2]", "training.steps=1"})
                .run();
        return run.weights_hash;
    };
    EXPECT_NE(first_update(10), first_update(0));
    const auto weights = [](int steps) {
        const Execution execution =
            on_devices("pipemare", 2, 1,
                       {fmt::format("training.anneal_steps={}", steps), "pipeline.split=[fc2]", "training.steps=1"});
        return by_name(checkpoints_of(execution).front().parameters);
    };
    const Execution none =
        on_devices("pipemare", 2, 1, {"training.learning_rate=0", "pipeline.split=[fc2]", "training.steps=1"});
    const auto start = by_name(checkpoints_of(none).front().parameters);
    const auto divided = weights(10), whole = weights(0);
    for (const auto& [name, values] : start)
        for (std::size_t k = 0; k < values.size(); ++k) {
            const double step = divided.at(name)[k] - values[k], undivided = whole.at(name)[k] - values[k];
            ASSERT_NEAR(step, undivided / (name.starts_with("fc1") ? 3 : 1), 1e-7) << name;
        }
}

// Synchronous steps train as 1F1B does.
TEST(PipeMareRuns, BeginAsOneFOneB) {
    const RunResult flushed = on_devices("1f1b", 3, 4, {"training.steps=5"}).run();
    const RunResult run = on_devices("pipemare", 3, 4, {"training.steps=5", "pipeline.synchronous_steps=5"}).run();
    expect_equal(run, flushed, "synchronous");
    const std::vector<double> later =
        on_devices("pipemare", 3, 4, {"training.steps=5", "pipeline.synchronous_steps=3"}).run().losses;
    for (int step = 0; step < 4; ++step)
        EXPECT_EQ(later[step], flushed.losses[step]) << step;
    EXPECT_NE(later[4], flushed.losses[4]);
}

// Where a run is in pieces, only the first steps of the whole are synchronous.
TEST(PipeMareRuns, AreSynchronousOnceInPieces) {
    const std::vector<std::string> common{"training.steps=4", "training.anneal_steps=0"};
    const auto weights = [&](int synchronous) {
        return by_name(
            checkpoints_of(
                on_devices("pipemare", 2, 8, with(common, {fmt::format("pipeline.synchronous_steps={}", synchronous)})))
                .back()
                .parameters);
    };
    EXPECT_EQ(weights(1), weights(0));  // a mini-batch alone is flushed in any order
}

TEST(PipeMareRuns, RefuseWhatTheyCannotDo) {
    expect_says(refusal([] {
                    (void)Execution(kMlp, {"pipeline.schedule=pipemare", "cluster.devices=3",
                                           "pipeline.replicas=[2, 1]", "training.shard_optimizer=true"});
                }),
                {"pipemare corrects weights with an average of their steps, which replicas do not shard",
                 "remove the key, or write pipeline.prediction: none"});
    expect_says(refusal([] { (void)on_devices("1f1b", 2, 4, {"pipeline.prediction=pipemare"}); }),
                {"schedule 1f1b with weight policy flush predicts no weights", "pipedream or pipemare"});
}

}  // namespace
}  // namespace pw
