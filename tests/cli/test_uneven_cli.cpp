// The command line with a mini-batch whose last micro-batch is smaller.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

namespace pw {
namespace {

class UnevenCli : public Cli {};

// mlp.yaml has 4 micro-batches of 2; here the last one has 1.
const std::string kSet = " --set pipeline.mini_batch=7";

TEST_F(UnevenCli, RatesCountActualSamples) {
    const Json uneven = run_well("simulate mlp.yaml --json" + kSet).json();
    EXPECT_EQ(uneven["mini_batch"], 7);
    EXPECT_FALSE(uneven["interpolated"]);
    EXPECT_DOUBLE_EQ(uneven["samples_per_second"].get<double>(), 7e9 / uneven["step_time_ns"].get<double>());
    EXPECT_EQ(run_well("simulate mlp.yaml --json").json()["mini_batch"], 8);
    const Said ran = run_well("run mlp.yaml --steps 1" + kSet);
    EXPECT_TRUE(contains(ran.out, "4 micro-batches of 2, the last of 1")) << ran.out;
}

TEST_F(UnevenCli, AProfileHasBothSizes) {
    const Said said = run_well("profile mlp.yaml -o profile.yaml --set run.backend=reference" + kSet);
    EXPECT_TRUE(contains(said.out, "micro-batches of 1\n") && contains(said.out, "micro-batches of 2\n")) << said.out;
    const std::string simulate = "simulate mlp.yaml --json --set cluster.profile=profile.yaml";
    EXPECT_FALSE(run_well(simulate + kSet).json()["interpolated"]);
    EXPECT_TRUE(
        run_well(simulate + " --set pipeline.micro_batch_size=3 --set pipeline.mini_batch=11").json()["interpolated"]);
}

TEST_F(UnevenCli, ASearchUsesSizesThatDivide) {
    const std::string refused = error_of("search mlp.yaml" + kSet, 2);
    EXPECT_TRUE(contains(refused, "no micro-batch size divides a mini-batch of 7 samples")) << refused;
    run_well("search mlp.yaml -o best.yaml --set search.micro_batch_sizes='[1, 2, 7]'" + kSet);
    const Json best = run_well("simulate best.yaml --json").json();
    EXPECT_EQ(best["mini_batch"], 7);
    EXPECT_EQ(best["micro_batches"].get<int>() * best["micro_batch_size"].get<int>(), 7);
    EXPECT_FALSE(contains(read("best.yaml"), "mini_batch: 8"));
    run_well("search mlp.yaml -o best.yaml --set search.mini_batch=16 --set search.micro_batch_sizes='[4]'");
    EXPECT_EQ(run_well("simulate best.yaml --json").json()["mini_batch"], 16);
}

TEST_F(UnevenCli, ASweepKeepsTheMiniBatch) {
    const Json json = run_well(
                          "simulate mlp.yaml --json --set 'pipeline={schedule: 1f1b, mini_batch: 7}' --set "
                          "'sweep={pipeline.micro_batch_size: [1, 2, 3]}'")
                          .json();
    ASSERT_EQ(json["points"].size(), 3u);
    for (const Json& point : json["points"])
        EXPECT_DOUBLE_EQ(point["samples_per_second"].get<double>(), 7e9 / point["step_time_ns"].get<double>());
}

TEST_F(UnevenCli, TheEffectiveConfigurationHasTheMiniBatch) {
    run_well("simulate mlp.yaml --trace trace.json" + kSet);
    EXPECT_TRUE(contains(read("trace.json"), "mini_batch: 7"));
    EXPECT_EQ(run_well("validate trace.json --json").json()["mini_batch"], 7);
}

}  // namespace
}  // namespace pw
