// Two copies of a model in opposite directions, on ranks: holders of one stage serve different micro-batches, are on
// different ranks and end their stages in opposite order. They learn what their oracle learns, bit for bit.
#include "schedules/csv/csv.h"
#include "tests/support/bidirectional.h"
#include "tests/support/mpi_rig.h"
#include "tests/support/thoroughness.h"

#include <cstdlib>
#include <string>

namespace pw {
namespace {

class BidirectionalOnRanks : public MpiRig {
protected:
    void SetUp() override {
        MpiRig::SetUp();
        binary_ = GetParam().binary;
        setenv("HOST_CUDA_DEVICES", "4", 1);
        write("both_ways.csv", print_csv(make_plan(kBidirectional, shape_both_ways(4)), false));
        write("mlp.yaml", R"(
workload: {model: mlp, hidden: [32, 32, 32, 32, 32, 32, 32]}
cluster: {devices: 4}
pipeline: {schedule: both_ways.csv, micro_batches: 4, micro_batch_size: 2}
training: {steps: 2}
run: {timeout: 60 s}
)");
        write("gpt.yaml", R"(
workload: {model: gpt, sequence_length: 8, vocabulary: 32, embedding: 16, blocks: 4, heads: 2}
cluster: {devices: 4}
pipeline: {schedule: both_ways.csv, micro_batches: 4, micro_batch_size: 2}
training: {steps: 2}
run: {timeout: 60 s}
)");
    }
    void TearDown() override {
        unsetenv("HOST_CUDA_DEVICES");
        MpiRig::TearDown();
    }

    void expect_oracle(const std::string& arguments, const std::vector<int>& numbers) {
        const Json oracle = run_well("run " + arguments + " --reference --json").json();
        const Json alone = run_well("run " + arguments + " --json").json();
        for (const char* key : {"weights_hash", "losses", "gradient_norms"})
            EXPECT_EQ(alone[key], oracle[key]) << arguments << ": " << key;
        expect_same(arguments, numbers);
    }
};

TEST_P(BidirectionalOnRanks, EqualTheirOracle) {
    OneIn some(2);
    for (const char* set :
         {"transfer.receive=early", "transfer.receive=deferred", "transfer.communicator=one", "training.clip_norm=0.05",
          "training.shard_optimizer=true", "pipeline.recompute=all", "transfer.sum_bucket=1KiB"})
        if (some.picks())
            expect_oracle(fmt::format("mlp.yaml --set {}", set), {2, 3, 4});
}

// The first and the last stage share a table: each of its holders has the other stage, too.
TEST_P(BidirectionalOnRanks, EqualTheirOracleWithTies) {
    for (const char* set : {"transfer.receive=early", "training.clip_norm=0.05"})
        expect_oracle(fmt::format("gpt.yaml --set {}", set), {2, 4});
}

TEST_P(BidirectionalOnRanks, EqualTheirOracleOnGpus) {
    for (const char* set : {"transfer.receive=early", "transfer.receive=deferred", "training.clip_norm=0.05"})
        expect_oracle(fmt::format("mlp.yaml --set run.backend=cuda --set {}", set), {2, 4});
    expect_oracle("gpt.yaml --set run.backend=cuda", {4});
}

INSTANTIATE_TEST_SUITE_P(Ranks, BidirectionalOnRanks, testing::ValuesIn(usual_mpis()), name_of_mpi);

}  // namespace
}  // namespace pw
