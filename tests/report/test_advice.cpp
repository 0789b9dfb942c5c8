// The sentence on what would make a plan faster, against all plans in which the slowest stage gives layers to a
// neighbour, each simulated from a config of its own.
#include "report/advice.h"

#include "job/load.h"
#include "report/report.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace pw {
namespace {

constexpr const char* kLlama = R"(
workload: {model: llama-3-8b, sequence_length: 8192}
cluster: {hosts: 1, devices_per_host: 8, device: h100-sxm-80}
training: {precision: bf16, optimizer: adamw}
parallel: {tensor: 2, pipeline: 4}
pipeline: {schedule: 1f1b, mini_batch: 32}
)";

class Advice : public testing::Test {
protected:
    Job job_of(const std::vector<std::string>& overrides) const {
        Notices notices;
        return make_job(load_config(path_, overrides), notices);
    }
    static Ns step_of(const Job& job) { return predicted_report(job, false).metrics.step_time; }
    // The step with these numbers of blocks on the stages.
    Ns step_with(const std::vector<int>& blocks) const {
        return step_of(job_of({fmt::format("pipeline.split=[{}]", fmt::join(blocks, ", "))}));
    }

    TemporaryFolder folder_;
    const std::string path_ = folder_.write("cfg.yaml", kLlama);
};

TEST_F(Advice, NamesTheBestMoveOfTheSlowestStage) {
    for (const std::vector<int>& blocks : {std::vector{8, 8, 8, 8}, {4, 12, 8, 8}, {11, 7, 7, 7}, {7, 7, 11, 7}}) {
        const Job job = job_of({fmt::format("pipeline.split=[{}]", fmt::join(blocks, ", "))});
        const Ns step = step_of(job);
        const std::string advice = advice_on(job, step);
        Ns best = std::numeric_limits<Ns>::max();
        std::string move;
        for (int stage = 0; stage < 4; ++stage)  // only moves from the slowest stage make a plan faster
            for (const int to : {stage - 1, stage + 1})
                for (int moved = 1; to >= 0 && to < 4 && moved <= blocks[stage]; ++moved) {
                    std::vector<int> other = blocks;
                    other[stage] -= moved;
                    other[to] += moved;
                    if (const Ns time = step_with(other); time < best) {
                        best = time;
                        move = fmt::format("stage {} takes", stage);
                    }
                }
        const double less = 1 - static_cast<double>(best) / static_cast<double>(step);
        EXPECT_NE(advice.find(move), std::string::npos) << advice;
        EXPECT_NE(advice.find(fmt::format("the step would take {:.1f} % less", 100 * less)), std::string::npos)
            << advice << "; best of all moves: " << best << " instead of " << step;
    }
}

// Additions of gradients take half of the backwards of the last layers.
TEST_F(Advice, NamesLayersOfAGraph) {
    const std::string path = folder_.write("resnet.yaml", R"(
workload: {model: resnet50}
cluster: {devices: 4, compute: 10 TFLOP/s, link: {bandwidth: 10 GB/s}}
pipeline: {schedule: 1f1b, micro_batches: 16, split: [layer2.0, layer3.0, layer4.0]}
)");
    const auto job_with = [&](const std::string& last) {
        Notices notices;
        return make_job(load_config(path, {fmt::format("pipeline.split=[layer2.0, layer3.0, {}]", last)}), notices);
    };
    const Job job = job_with("layer4.0");
    const Ns step = step_of(job);
    Ns best = step;
    const std::vector<int>& layers = job.split.layers[3];
    for (std::size_t moved = 1; moved < layers.size(); ++moved)
        best = std::min(best, step_of(job_with(job.model->layers[static_cast<std::size_t>(layers[moved])].name)));
    EXPECT_EQ(
        advice_on(job, step),
        fmt::format("stage 3 takes 22.2 % longer than the mean stage: with layer4.0.conv1 to layer4.0.bn1 on stage "
                    "2 the step would take {:.1f} % less",
                    100 * (1 - static_cast<double>(best) / static_cast<double>(step))));
}

// 9, 9, 8 and 6 blocks are the best split of this model: the head takes about as long as two blocks.
TEST_F(Advice, IsSilentWhereNoMoveHelps) {
    const Job balanced = job_of({"pipeline.split=[9, 9, 8, 6]"});
    EXPECT_EQ(advice_on(balanced, step_of(balanced)), "");
    const Job ordered = job_of({"pipeline.schedule=auto"});
    EXPECT_EQ(advice_on(ordered, step_of(ordered)), "") << "an order by costs takes long";
    const Job single = job_of({"parallel.pipeline=1", "parallel.tensor=8"});
    EXPECT_EQ(advice_on(single, step_of(single)), "");
}

}  // namespace
}  // namespace pw
