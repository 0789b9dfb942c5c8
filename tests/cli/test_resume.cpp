// A training that is cut in two ends as the whole one does, whatever runs its second part.
#include "tests/support/cli_rig.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace pw {

namespace {

class Resume : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("four.yaml", R"(
workload: {model: mlp, hidden: [32, 32, 32, 32, 32, 32, 32], dropout: 0.1}
cluster: {devices: 4}
pipeline: {schedule: 1f1b, micro_batches: 8, micro_batch_size: 2}
training: {steps: 6, weight_decay: 0.01}
)");
        write("resnet.yaml", R"(
workload: {model: resnet50, image_size: 32, classes: 10}
cluster: {devices: 2}
pipeline: {schedule: 1f1b, micro_batches: 4, micro_batch_size: 1}
training: {steps: 3}
)");
        write("gpt.yaml", R"(
workload: {model: gpt, sequence_length: 16, vocabulary: 64, embedding: 32, blocks: 4, heads: 2}
cluster: {devices: 4}
pipeline: {schedule: 1f1b, micro_batches: 4, micro_batch_size: 2}
training: {steps: 4, clip_norm: 0.5}
)");
    }

    std::string hash_of(const std::string& arguments) const {
        return run_well("run " + arguments + " --json").json()["weights_hash"];
    }
    bool says(const std::string& text, const std::string& part) const { return text.find(part) != std::string::npos; }
};

TEST_F(Resume, EndsAsTheWholeDoes) {
    const std::string whole = hash_of("four.yaml --checkpoint all --checkpoint-every 2 --keep 3");
    EXPECT_EQ(hash_of("four.yaml --resume all/step-00000002"), whole);
    EXPECT_EQ(hash_of("four.yaml --resume all/step-00000004"), whole);
    EXPECT_TRUE(says(run_well("run four.yaml --resume all/step-00000004").err, "after step 4"));
    // the statistics and momenta of another model, the shared table of a third
    const std::string images = hash_of("resnet.yaml --checkpoint images --checkpoint-every 1 --keep 9");
    EXPECT_EQ(hash_of("resnet.yaml --resume images/step-00000001"), images);
    const std::string text = hash_of("gpt.yaml --checkpoint text --checkpoint-every 2");
    EXPECT_EQ(hash_of("gpt.yaml --resume text/step-00000002"), text);
}

TEST_F(Resume, OnOtherDevicesSplitsAndSchedules) {
    const std::string whole = hash_of("four.yaml --checkpoint all --checkpoint-every 3");
    for (const char* set : {"--set cluster.devices=2", "--set cluster.devices=1 --set pipeline.schedule=naive",
                            "--set pipeline.schedule=zb-h1", "--set pipeline.split=even",
                            "--set pipeline.schedule=interleaved --set pipeline.stages=8", "--reference"})
        EXPECT_EQ(hash_of(fmt::format("four.yaml --resume all/step-00000003 {}", set)), whole) << set;
    const std::string text = hash_of("gpt.yaml --checkpoint text --checkpoint-every 2");
    EXPECT_EQ(hash_of("gpt.yaml --resume text/step-00000002 --set cluster.devices=1"), text);
}

// Each holder keeps a part of the momenta; a checkpoint has all, and goes on with any number of holders.
TEST_F(Resume, WithAndWithoutAShardedOptimizer) {
    const std::string sharded = " --set training.shard_optimizer=true", two = " --set pipeline.stages=2";
    for (const char* config : {"four.yaml", "gpt.yaml"}) {
        const std::string replicas = config + two + " --set pipeline.replicas=[2,2]";
        const std::string folder = std::string(config) + ".kept";
        const std::string whole = hash_of(replicas + " --checkpoint whole --checkpoint-every 2 --keep 9");
        EXPECT_EQ(hash_of(replicas + sharded + " --checkpoint " + folder + " --checkpoint-every 2 --keep 9"), whole);
        for (const std::string& from : {std::string("whole"), folder})
            for (const std::string& on : {replicas, replicas + sharded})
                EXPECT_EQ(hash_of(on + " --resume " + from + "/step-00000002"), whole) << on << " from " << from;
        // other holders group the sums in another way, with and without shards alike
        const std::string others = config + two + " --set pipeline.replicas=[1,3]";
        EXPECT_EQ(hash_of(others + sharded + " --resume " + folder + "/step-00000002"),
                  hash_of(others + " --resume whole/step-00000002"));
        std::filesystem::remove_all(file("whole"));
    }
}

// The pipeline of an asynchronous plan runs empty before each checkpoint: as if each piece were a run by hand.
TEST_F(Resume, AsynchronousPlansInPieces) {
    for (const std::string schedule : {"pipedream", "pipedream-2bw"}) {
        const std::string plan = "four.yaml --set pipeline.schedule=" + schedule;
        const std::string all = "all-" + schedule, pieces = " --checkpoint " + all + " --checkpoint-every 2 --keep 9";
        const Json whole = run_well("run " + plan + " --steps 5" + pieces + " --json").json();
        EXPECT_EQ(whole["losses"].size(), schedule == "pipedream" ? 40u : 5u);
        EXPECT_EQ(whole["gradient_norms"].size(), whole["losses"].size());
        EXPECT_EQ(run_well("validate " + all + " --json").json()["step"], 5);
        Json losses = Json::array();
        std::string from, hash;
        for (const int steps : {2, 4, 5}) {
            const std::string folder = fmt::format("{}-by-hand-{}", schedule, steps);
            const Json piece =
                run_well(fmt::format("run {} --steps {} {} --checkpoint {} --json", plan, steps, from, folder)).json();
            losses.insert(losses.end(), piece["losses"].begin(), piece["losses"].end());
            hash = piece["weights_hash"];
            from = "--resume " + folder;
        }
        EXPECT_EQ(whole["losses"], losses);
        EXPECT_EQ(whole["weights_hash"], hash);
        // cut off after its second checkpoint, and in the middle of a piece; its reference in the same pieces
        std::filesystem::remove_all(file(all + "/step-00000005"));
        EXPECT_EQ(hash_of(plan + " --steps 5 --resume " + all + pieces), hash);
        EXPECT_EQ(hash_of(plan + " --steps 5 --reference --checkpoint reference-" + schedule + " --checkpoint-every 2"),
                  hash);
    }
    const std::string plan = "four.yaml --set pipeline.schedule=pipedream";
    run_well("run " + plan + " --steps 3 --checkpoint odd");
    const std::string twice = hash_of(plan + " --resume odd");
    EXPECT_EQ(hash_of(plan + " --resume odd --reference"), twice);
    run_well("run " + plan + " --steps 6 --resume odd --checkpoint odd --checkpoint-every 4 --keep 9");
    EXPECT_TRUE(std::filesystem::exists(file("odd/step-00000004/complete")));
    EXPECT_TRUE(std::filesystem::exists(file("odd/step-00000006/complete")));
}

TEST_F(Resume, ChecksCheckpoints) {
    const Json run = run_well("run four.yaml --checkpoint all --checkpoint-every 3 --json").json();
    const Json told = run_well("validate all --json").json();
    EXPECT_EQ(told["kind"], "checkpoint");
    EXPECT_EQ(told["step"], 6);
    EXPECT_EQ(told["samples"], 96);
    EXPECT_EQ(told["weights_hash"], run["weights_hash"]);
    std::ofstream(file("all/step-00000006/model.safetensors"), std::ios::app) << "x";
    EXPECT_EQ(run_well("validate all --json").json()["step"], 3);
    EXPECT_TRUE(says(error_of("validate all/step-00000006", 4), "not as it was written"));
    EXPECT_TRUE(says(run_well("run four.yaml --resume all").err, "the one before is taken"));
}

TEST_F(Resume, RefusesAnotherTraining) {
    run_well("run four.yaml --checkpoint all");
    EXPECT_TRUE(says(error_of("run four.yaml --resume all", 2), "has done 6 steps"));
    EXPECT_TRUE(says(error_of("run gpt.yaml --resume all --steps 9", 2), "has no "));
    EXPECT_TRUE(says(error_of("run four.yaml --resume all --steps 9 --set workload.hidden=[32,16,32,32,32,32,32]", 2),
                     "of shape"));
    EXPECT_TRUE(says(error_of("run four.yaml --resume all --steps 9 --set pipeline.micro_batches=4", 2), "96 samples"));
    EXPECT_TRUE(says(error_of("run four.yaml --resume all --steps 9 --set training.seed=2", 2), "training.seed"));
    EXPECT_TRUE(says(error_of("run four.yaml --resume nowhere", 2), "has no checkpoint"));
    EXPECT_TRUE(says(error_of("run four.yaml --checkpoint-every 2", 2), "--checkpoint DIR"));
    EXPECT_TRUE(says(error_of("run four.yaml --set run.backend=emulated --checkpoint all", 2), "no parameters"));
}

TEST_F(Resume, ASignalEndsTheRunWithItsStep) {
    write("end.sh", R"(
"$1" run four.yaml --steps 1000000 --checkpoint all >end.out 2>end.err &
sleep 1
kill -TERM $!
wait $!
echo $? >code
)");
    ASSERT_EQ(std::system(fmt::format("cd '{}' && sh end.sh '{}'", file("").string(), binary_).c_str()), 0);
    EXPECT_EQ(read("code"), "1\n");
    EXPECT_TRUE(says(read("end.err"), "stopped by a signal after step")) << read("end.err");
    EXPECT_TRUE(says(read("end.out"), "weights")) << read("end.out");
    const Json told = run_well("validate all --json").json();
    EXPECT_TRUE(says(read("end.err"), fmt::format("after step {}", told["step"].get<int>()))) << read("end.err");
    EXPECT_TRUE(says(read("end.out"), told["weights_hash"].get<std::string>())) << read("end.out");
}

}  // namespace

}  // namespace pw
