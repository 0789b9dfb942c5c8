// A configuration, ready to run, for the tests of the executors.
#pragma once

#include "exec/execute.h"
#include "exec/oracle.h"
#include "job/build.h"
#include "job/load.h"
#include "job/plan.h"
#include "schedules/orders/schedule.h"
#include "tests/support/temporary_folder.h"
#include "workloads/costs/micro_batch_sizes.h"
#include "workloads/models/resnet.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pw {

inline constexpr const char* kResNet = R"(
workload: {model: resnet50, image_size: 32, classes: 10}
pipeline: {schedule: naive, micro_batches: 8, micro_batch_size: 2}
training: {steps: 2, learning_rate: 0.001, seed: 3}
)";

inline constexpr const char* kMlp = R"(
workload: {model: mlp, image_size: 8, hidden: [128, 96]}
pipeline: {schedule: naive, micro_batches: 4, micro_batch_size: 3}
training: {steps: 3, seed: 3}
run: {backend: reference}
)";

inline constexpr const char* kSmallUNet = R"(
workload: {model: unet, image_size: 8, classes: 3, base_channels: 8, levels: 2}
pipeline: {schedule: naive, micro_batches: 4, micro_batch_size: 2}
training: {steps: 2, learning_rate: 0.01, seed: 3}
)";

inline constexpr const char* kSmallGpt = R"(
workload: {model: gpt, sequence_length: 6, vocabulary: 11, embedding: 8, blocks: 4, heads: 2, dropout: 0.1}
pipeline: {schedule: naive, micro_batches: 4, micro_batch_size: 2}
training: {steps: 2, learning_rate: 0.1, seed: 3}
)";

inline constexpr const char* kSmallLlama = R"(
workload: {model: llama, sequence_length: 6, vocabulary: 11, embedding: 16, blocks: 2, heads: 4, key_value_heads: 2,
           inner: 20}
pipeline: {schedule: naive, micro_batches: 4, micro_batch_size: 2}
training: {steps: 2, learning_rate: 0.1, seed: 3}
)";

class Execution {
public:
    Execution(const char* yaml, const std::vector<std::string>& set) {
        Notices notices;
        job_ = make_job(loaded(yaml, set), notices);
    }
    // Takes another model than the one that the file names.
    Execution(const char* yaml, const std::vector<std::string>& set, Model model) {
        Notices notices;
        job_ = make_job(loaded(yaml, set), std::move(model), notices);
    }
    // Takes another schedule than the one that the file names.
    Execution(const char* yaml, const std::vector<std::string>& set, const Schedule& schedule) {
        Notices notices;
        job_ = make_job(loaded(yaml, set), schedule, notices);
    }

    const Job& job() const { return job_; }
    RunResult run(const RunOptions& options = {}) const { return pw::run(job_, options); }
    RunResult oracle() const { return pw::run(oracle_of(job_), {}); }

private:
    // Micro-batches are whole unless the test says otherwise: not every model can be cut.
    Config loaded(const char* yaml, std::vector<std::string> set) const {
        set.insert(set.begin(), "pipeline.slices=1");
        return load_config(folder_.write("config.yaml", yaml), set);
    }

    TemporaryFolder folder_;
    Job job_;
};

// Returns a model with all kinds of layers and cuts of ResNet-50 in a sixtieth of its work.
inline Model small_resnet(int image_size = 32) {
    return build_resnet("small resnet", {.blocks = {1, 2, 1, 1}, .width = 16}, image_size, 10);
}
inline Execution of_small_resnet(const std::vector<std::string>& set) { return {kResNet, set, small_resnet()}; }

inline RunOptions guarded() {
    RunOptions options;
    options.guarded = true;
    return options;
}

inline std::vector<std::string> with(std::vector<std::string> set, const std::vector<std::string>& more) {
    set.insert(set.end(), more.begin(), more.end());
    return set;
}

inline void expect_equal(const RunResult& a, const RunResult& b, const std::string& what) {
    EXPECT_EQ(a.weights_hash, b.weights_hash) << what;
    EXPECT_EQ(a.losses, b.losses) << what;
    EXPECT_EQ(a.gradient_norms, b.gradient_norms) << what;
}

}  // namespace pw
