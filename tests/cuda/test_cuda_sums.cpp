// Sums between GPUs, of which only the host stand-in has several: replicas, shared tables and clipping equal their
// oracle; sums in NCCL's order do so up to rounding.
#include "tests/cuda/host_cuda/host_cuda.h"
#include "tests/support/execution.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace pw {
namespace {

constexpr const char* kUNet = R"(
workload: {model: unet, image_size: 16, classes: 4, base_channels: 4, levels: 2}
pipeline: {schedule: gpipe, split: even, micro_batches: 3, micro_batch_size: 1}
training: {steps: 2, learning_rate: 0.01, seed: 3}
)";

constexpr const char* kGpt = R"(
workload: {model: gpt, sequence_length: 6, vocabulary: 11, embedding: 8, blocks: 2, heads: 2}
pipeline: {schedule: 1f1b, split: even, micro_batches: 4, micro_batch_size: 2}
training: {steps: 2, learning_rate: 0.1, seed: 3}
)";

using Replicas = std::vector<int>;

class CudaSums : public testing::Test {
protected:
    void SetUp() override {
        host_cuda::set_devices(16);
        host_cuda::set_peer_access(
            false);  // so that a kernel that reads another GPU's memory without a fetch is detected
    }
    void TearDown() override {
        host_cuda::set_peer_access(true);
        host_cuda::set_devices(1);
        (void)cudaSetDevice(0);
    }
};

std::vector<std::string> on(const char* transport, const Replicas& replicas,
                            const std::vector<std::string>& more = {}) {
    return with({"run.backend=cuda", std::string("run.transport=") + transport, "pipeline.split=even",
                 fmt::format("pipeline.replicas=[{}]", fmt::join(replicas, ", "))},
                more);
}

// The note about the last device of a run with a GPU for each device.
void expect_oracle(const char* yaml, const std::vector<std::string>& set) {
    const Execution execution(yaml, set);
    const std::string what = fmt::format("{}", fmt::join(set, " "));
    const RunResult run = execution.run();
    expect_equal(run, execution.oracle(), what);
    const int last = execution.job().plan.shape.devices - 1;
    const std::string& note = run.notes[static_cast<std::size_t>(last)];
    EXPECT_TRUE(note.starts_with(fmt::format("device {}: host stand-in, GPU {}", last, last))) << note;
}

TEST_F(CudaSums, OfReplicasEqualTheirOracle) {
    host_cuda::set_peer_access(true);
    for (const char* transport : {"threads", "nccl"})
        for (const Replicas& replicas : {Replicas{2}, Replicas{2, 1}, Replicas{1, 2}, Replicas{3, 1, 2}})
            for (const auto& [schedule, clip] : {std::pair{"1f1b", "0"}, {"zb-h1", "0.5"}})
                expect_oracle(kMlp, on(transport, replicas,
                                       {std::string("pipeline.schedule=") + schedule, "pipeline.micro_batches=5",
                                        "training.steps=2", std::string("training.clip_norm=") + clip}));
}

TEST_F(CudaSums, EqualTheirOracleInBf16AndOnTheLastGpu) {
    host_cuda::set_peer_access(true);  // between some of them
    for (const char* transport : {"threads", "nccl"})
        for (const Replicas& replicas : {Replicas{16}, Replicas{5, 6, 5}})
            expect_oracle(kMlp, on(transport, replicas,
                                   {"pipeline.schedule=1f1b", "training.precision=bf16", "pipeline.micro_batches=16",
                                    "training.steps=2", "training.clip_norm=0.1"}));
}

// Holders without a micro-batch contribute nothing.
TEST_F(CudaSums, EqualTheirOracleWithoutWork) {
    for (const char* transport : {"threads", "nccl"})
        for (const Replicas& replicas : {Replicas{3}, Replicas{1, 3}})
            expect_oracle(kMlp, on(transport, replicas, {"pipeline.micro_batches=2", "training.steps=2"}));
}

TEST_F(CudaSums, OfSchedulesThatNeverFlushEqualTheirOracle) {
    for (const char* transport : {"threads", "nccl"})
        for (const Replicas& replicas : {Replicas{2}, Replicas{3, 1}})
            for (const char* schedule : {"pipedream", "pipedream-2bw"})
                expect_oracle(kMlp, on(transport, replicas,
                                       {std::string("pipeline.schedule=") + schedule, "pipeline.micro_batches=6",
                                        "training.steps=2"}));
}

TEST_F(CudaSums, ReportTheirMemory) {
    const auto note_of = [](const Replicas& replicas) {
        return Execution(kMlp, on("threads", replicas, {"training.steps=1"})).run().notes.front();
    };
    EXPECT_NE(note_of({2}).find(" for sums between GPUs"), std::string::npos) << note_of({2});
    EXPECT_EQ(note_of({1, 1}).find(" for sums between GPUs"), std::string::npos);
}

// The statistics of a mini-batch are on several GPUs.
TEST_F(CudaSums, OfBatchNormGatherTheStatisticsOfAllHolders) {
    for (const char* transport : {"threads", "nccl"})
        for (const auto& mode : {std::vector<std::string>{}, {"training.batch_norm=deferred"}})
            for (const Replicas& replicas : {Replicas{3}, Replicas{2, 1}})
                expect_oracle(kUNet, on(transport, replicas, mode));
}

// The embedding and the last layer are on two GPUs, or each on several.
TEST_F(CudaSums, OfSharedTablesEqualTheirOracle) {
    for (const char* transport : {"threads", "nccl"})
        for (const char* clip : {"0", "0.5"}) {
            const std::string clipped = std::string("training.clip_norm=") + clip;
            expect_oracle(
                kGpt, {"run.backend=cuda", "cluster.devices=2", std::string("run.transport=") + transport, clipped});
            expect_oracle(kGpt, {"run.backend=cuda", "cluster.devices=2", std::string("run.transport=") + transport,
                                 clipped, "pipeline.schedule=interleaved"});
            for (const Replicas& replicas : {Replicas{2, 1}, Replicas{2, 2, 3}})
                expect_oracle(kGpt, on(transport, replicas, {clipped}));
        }
}

TEST_F(CudaSums, UseTheOrderOfNcclIfBitsMayDiffer) {
    for (const Replicas& replicas : {Replicas{2}, Replicas{3, 2}, Replicas{1, 4}})
        for (const char* yaml : {kMlp, kGpt}) {
            const std::vector<std::string> free =
                on("nccl", replicas, {"run.deterministic=false", "pipeline.micro_batches=8", "training.steps=2"});
            const Execution execution(yaml, free);
            const RunResult run = execution.run(), oracle = execution.oracle();
            ASSERT_EQ(run.losses.size(), oracle.losses.size());
            for (std::size_t k = 0; k < run.losses.size(); ++k)
                EXPECT_NEAR(run.losses[k], oracle.losses[k], 1e-4 * oracle.losses[k]) << replicas.size();
            for (std::size_t k = 0; k < run.gradient_norms.size(); ++k)
                EXPECT_NEAR(run.gradient_norms[k], oracle.gradient_norms[k], 1e-4 * oracle.gradient_norms[k]);
            const bool many =
                *std::max_element(replicas.begin(), replicas.end()) > 2;  // a sum of two has only one order
            EXPECT_EQ(run.weights_hash != oracle.weights_hash, many) << fmt::format("{}", fmt::join(replicas, " "));
        }
}

}  // namespace
}  // namespace pw
