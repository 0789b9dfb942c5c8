// pipeline.rules: mindspore refuses some configs that pipewright accepts, each by one rule.
#include "job/build.h"
#include "job/load.h"
#include "job/rules.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

// Two branches of `fork`: a and b.
constexpr const char* kBranches = R"(
samples: 1
layers:
  - {name: fork, inputs: [], forward: 1 us, backward: 1 us, output: 1 kB, weights: 1 kB}
  - {name: a, inputs: [fork], forward: 1 us, backward: 1 us, output: 1 kB, weights: 1 kB}
  - {name: b, inputs: [fork], forward: 1 us, backward: 1 us, output: 1 kB, weights: 1 kB}
  - {name: join, inputs: [a, b], forward: 1 us, backward: 1 us, output: 1 kB}
)";

// Returns the error of the rules for a config of the model; empty: none.
std::string error_of_rules(const std::string& pipeline, const std::string& run = "{}",
                           const std::string& model = "mlp") {
    const TemporaryFolder folder;
    folder.write("branches.yaml", kBranches);
    const Config config = load_config(
        folder.write("cfg.yaml",
                     fmt::format("workload: {{model: {}}}\npipeline: {{{}}}\nrun: {}\n", model, pipeline, run)),
        {});
    try {
        if (model == "uniform") {
            check_rules(config, nullptr);
        } else {
            const Model built = build_model(config);
            check_rules(config, &built);
        }
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::BadInput);
        return error.what();
    }
    return "";
}

constexpr const char* kAll = "micro_batches: 2, split: {stages: [[fc1, relu1, fc2], [relu2, fc3, relu3, loss]]}";
constexpr const char* kNoFc = "micro_batches: 2, split: {stages: [[fc1, relu1, fc2], [relu2, relu3, loss]]}";
constexpr const char* kBackwards = "micro_batches: 2, split: {stages: [[fc1, fc2], [relu1, relu2, fc3, relu3, loss]]}";
constexpr const char* kSideBySide = "micro_batches: 2, split: {stages: [[fork, b], [a, join]]}";

std::string strict(const std::string& pipeline) { return "rules: mindspore, " + pipeline; }

TEST(MindSpore, AcceptsTheTutorial) {
    EXPECT_EQ(error_of_rules(strict(kAll)), "");
    EXPECT_EQ(
        error_of_rules(strict("stages: 2, micro_batches: 2, micro_batch_size: 16, replicas: [4, 4]"), "{}", "resnet50"),
        "");
    EXPECT_EQ(error_of_rules(strict("split: [layer3], micro_batches: 2"), "{backend: cuda}", "resnet50"), "");
}

TEST(MindSpore, EveryLayerWithParametersHasAStage) {
    expect_says(error_of_rules(strict(kNoFc)), {"cfg.yaml:2:", "layer 'fc3' has parameters and no stage",
                                                "list it in a stage", "or remove pipeline.rules"});
    // a layer without parameters is left to the other checks
    EXPECT_EQ(error_of_rules(strict("micro_batches: 2, split: {stages: [[fc1, fc2], [fc3]]}")), "");
}

TEST(MindSpore, StagesAscendInExecutionOrder) {
    expect_says(error_of_rules(strict(kBackwards)),
                {"cfg.yaml:2:", "stages do not ascend in execution order",
                 "layer 'fc2' of stage 0 reads 'relu1' of stage 1", "move 'fc2' to stage 1 or later"});
    expect_says(error_of_rules(strict(kSideBySide), "{}", "branches.yaml"),
                {"cfg.yaml:2:", "layer 'b' of stage 0 runs after 'a' of stage 1"});
}

TEST(MindSpore, HasAsManyMicroBatchesAsStages) {
    expect_says(error_of_rules(strict("stages: 4, micro_batches: 3")),
                {"cfg.yaml:2:", "4 stages need at least as many micro-batches, not 3", "write micro_batches: 4"});
    EXPECT_EQ(error_of_rules(strict("stages: 4, micro_batches: 4")), "");
    expect_says(error_of_rules(strict("stages: 4, micro_batches: 3"), "{}", "uniform"), {"4 stages need"});
}

TEST(MindSpore, HasEqualMicroBatches) {
    expect_says(error_of_rules(strict("stages: 2, micro_batch_size: 4, mini_batch: 10")),
                {"cfg.yaml:2:", "10 samples are not 3 equal micro-batches", "write mini_batch: 12"});
    EXPECT_EQ(error_of_rules(strict("stages: 2, micro_batch_size: 4, mini_batch: 12")), "");
}

TEST(MindSpore, ComputesInFp32) {
    for (const char* precision : {"tf32", "bf16"})
        expect_says(
            error_of_rules(strict(kAll), fmt::format("{{backend: cuda}}\ntraining: {{precision: {}}}", precision)),
            {"cfg.yaml:4:", fmt::format("not in {}", precision), "write precision: fp32"});
}

TEST(MindSpore, RefusesPlansThatPipewrightAccepts) {
    for (const char* pipeline : {"stages: 4, micro_batches: 3", "stages: 2, micro_batch_size: 4, mini_batch: 10"})
        EXPECT_EQ(error_of_rules(pipeline), "") << pipeline;
    EXPECT_EQ(error_of_rules(kAll, "{backend: cuda, precision: bf16}"), "");
    EXPECT_EQ(error_of_rules(kSideBySide, "{}", "branches.yaml"), "");
}

}  // namespace
}  // namespace pw
