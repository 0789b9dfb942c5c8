// A training in two parts ends as in one, whatever runs its second part.
#include "exec/checkpoint/checkpoint.h"
#include "tests/support/cli_rig.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

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
        write("unet.yaml", R"(
workload: {model: unet, image_size: 16, classes: 4, base_channels: 8, levels: 2}
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

TEST_F(Resume, EqualsAnUninterruptedRun) {
    const std::string whole = hash_of("four.yaml --checkpoint all --checkpoint-every 2 --keep 3");
    EXPECT_EQ(hash_of("four.yaml --resume all/step-00000002"), whole);
    EXPECT_EQ(hash_of("four.yaml --resume all/step-00000004"), whole);
    EXPECT_TRUE(says(run_well("run four.yaml --resume all/step-00000004").err, "after step 4"));
    // the statistics and momenta of another model, the shared table of a third
    const std::string images = hash_of("unet.yaml --checkpoint images --checkpoint-every 1 --keep 9");
    EXPECT_EQ(hash_of("unet.yaml --resume images/step-00000001"), images);
    const std::string text = hash_of("gpt.yaml --checkpoint text --checkpoint-every 2");
    EXPECT_EQ(hash_of("gpt.yaml --resume text/step-00000002"), text);
}

// Its updates are counted over both parts, and both of its states are kept.
TEST_F(Resume, EqualsAnUninterruptedRunOfAdamW) {
    for (const std::string config : {"four.yaml", "gpt.yaml"}) {
        const std::string ten = config + " --set training.optimizer=adamw --steps 10", kept = config + ".kept";
        const std::string whole = hash_of(ten + " --checkpoint " + kept + " --checkpoint-every 5");
        EXPECT_EQ(hash_of(ten + " --resume " + kept + "/step-00000005"), whole) << config;
        EXPECT_EQ(hash_of(ten + " --resume " + kept + "/step-00000005 --reference"), whole) << config;
        EXPECT_NE(hash_of(config + " --steps 10"), whole);
    }
}

TEST_F(Resume, WorksOnOtherDevicesSplitsAndSchedules) {
    const std::string whole = hash_of("four.yaml --checkpoint all --checkpoint-every 3");
    for (const char* set : {"--set cluster.devices=2", "--set cluster.devices=1 --set pipeline.schedule=naive",
                            "--set pipeline.schedule=zb-h1", "--set pipeline.split=even",
                            "--set pipeline.schedule=interleaved --set pipeline.stages=8", "--reference"})
        EXPECT_EQ(hash_of(fmt::format("four.yaml --resume all/step-00000003 {}", set)), whole) << set;
    const std::string text = hash_of("gpt.yaml --checkpoint text --checkpoint-every 2");
    EXPECT_EQ(hash_of("gpt.yaml --resume text/step-00000002 --set cluster.devices=1"), text);
}

// Each holder keeps a part of the momenta; a checkpoint has all, and any number of holders can resume from it.
TEST_F(Resume, WorksWithAndWithoutAShardedOptimizer) {
    const std::string sharded = " --set training.shard_optimizer=true", two = " --set pipeline.stages=2";
    for (const std::string config : {"four.yaml", "gpt.yaml", "four.yaml --set training.optimizer=adamw"}) {
        const std::string replicas = config + two + " --set pipeline.replicas=[2,2]";
        const std::string whole = hash_of(replicas + " --checkpoint whole --checkpoint-every 2 --keep 9");
        EXPECT_EQ(hash_of(replicas + sharded + " --checkpoint parts --checkpoint-every 2 --keep 9"), whole);
        for (const std::string from : {"whole", "parts"})
            for (const std::string& on : {replicas, replicas + sharded})
                EXPECT_EQ(hash_of(on + " --resume " + from + "/step-00000002"), whole) << on << " from " << from;
        // other holders group the sums differently, with and without shards
        const std::string others = config + two + " --set pipeline.replicas=[1,3]";
        EXPECT_EQ(hash_of(others + sharded + " --resume parts/step-00000002"),
                  hash_of(others + " --resume whole/step-00000002"));
        for (const char* folder : {"whole", "parts"})
            std::filesystem::remove_all(file(folder));
    }
}

// They have one sum of each stage's even micro-batches and one of its odd ones.
TEST_F(Resume, WorksWithOtherReplicasOfAPipeline) {
    const std::string twice = "four.yaml --set pipeline.replicas=2 --set pipeline.schedule=";
    const std::string whole = hash_of(twice +
                                      "interleaved --set pipeline.stages=4 --checkpoint all "
                                      "--checkpoint-every 2 --keep 9");
    for (const char* other : {"zb-v --set pipeline.stages=4 --set training.shard_optimizer=true",
                              "1f1b --set pipeline.stages=2", "bfs --set pipeline.drain=fifo --set pipeline.stages=4"})
        EXPECT_EQ(hash_of(twice + other + " --resume all/step-00000002"), whole) << other;
}

// The pipeline of an asynchronous plan drains before each checkpoint, as if each piece were a separate run.
TEST_F(Resume, WorksForAsynchronousPlansInPieces) {
    using Way = std::pair<std::string, std::string>;
    for (const auto& [schedule, optimizer] :
         {Way("pipedream", "sgd"), Way("pipedream-2bw", "sgd"), Way("pipedream", "adamw"), Way("pipemare", "sgd")}) {
        const std::string plan =
            fmt::format("four.yaml --set pipeline.schedule={} --set training.optimizer={}", schedule, optimizer) +
            (schedule == "pipemare" ? " --set training.anneal_steps=3" : "");
        const std::string name = schedule + "-" + optimizer, all = "all-" + name;
        const std::string pieces = " --checkpoint " + all + " --checkpoint-every 2 --keep 9";
        const Json whole = run_well("run " + plan + " --steps 5" + pieces + " --json").json();
        EXPECT_EQ(whole["losses"].size(), schedule == "pipedream" ? 40u : 5u);
        EXPECT_EQ(whole["gradient_norms"].size(), whole["losses"].size());
        EXPECT_EQ(run_well("validate " + all + " --json").json()["step"], 5);
        EXPECT_EQ(read_checkpoint(file(all + "/step-00000005").string()).updates, whole["losses"].size());
        Json losses = Json::array();
        std::string from, hash;
        for (const int steps : {2, 4, 5}) {
            const std::string folder = fmt::format("{}-by-hand-{}", name, steps);
            const Json piece =
                run_well(fmt::format("run {} --steps {} {} --checkpoint {} --json", plan, steps, from, folder)).json();
            losses.insert(losses.end(), piece["losses"].begin(), piece["losses"].end());
            hash = piece["weights_hash"];
            from = "--resume " + folder;
        }
        EXPECT_EQ(whole["losses"], losses);
        EXPECT_EQ(whole["weights_hash"], hash);
        // cut off after its second checkpoint, and in the middle of a piece; its reference runs the same pieces
        std::filesystem::remove_all(file(all + "/step-00000005"));
        EXPECT_EQ(hash_of(plan + " --steps 5 --resume " + all + pieces), hash);
        EXPECT_EQ(hash_of(plan + " --steps 5 --reference --checkpoint reference-" + name + " --checkpoint-every 2"),
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
    EXPECT_TRUE(says(run_well("run four.yaml --resume all").err, "using the previous one"));
}

TEST_F(Resume, RefusesAnotherTraining) {
    run_well("run four.yaml --checkpoint all");
    EXPECT_TRUE(says(error_of("run four.yaml --resume all", 2), "is of step 6"));
    EXPECT_TRUE(says(error_of("run gpt.yaml --resume all --steps 9", 2), "has no "));
    EXPECT_TRUE(says(error_of("run four.yaml --resume all --steps 9 --set workload.hidden=[32,16,32,32,32,32,32]", 2),
                     "of shape"));
    EXPECT_TRUE(says(error_of("run four.yaml --resume all --steps 9 --set pipeline.micro_batches=4", 2), "96 samples"));
    EXPECT_TRUE(says(error_of("run four.yaml --resume all --steps 9 --set training.seed=2", 2), "training.seed"));
    const std::string other = error_of("run four.yaml --resume all --steps 9 --set training.optimizer=adamw", 2);
    EXPECT_TRUE(says(other, "has the states of optimizer sgd, and training.optimizer is adamw now")) << other;
    EXPECT_TRUE(says(other, "help: write training.optimizer: sgd, or begin anew")) << other;
    EXPECT_TRUE(says(error_of("run four.yaml --resume nowhere", 2), "has no checkpoint"));
    EXPECT_TRUE(says(error_of("run four.yaml --checkpoint-every 2", 2), "--checkpoint DIR"));
    EXPECT_TRUE(says(error_of("run four.yaml --set run.backend=emulated --checkpoint all", 2), "no parameters"));
}

// A folder of another run is refused before any training, and nothing in it changes.
TEST_F(Resume, RefusesAFolderOfAnotherRun) {
    run_well("run four.yaml --steps 4 --checkpoint kept --checkpoint-every 2");
    const std::string before = read("kept/step-00000004/complete");
    const std::string help = "help: add --resume kept, or name another folder";
    for (const char* more : {"", " --steps 2 --checkpoint-every 1", " --set training.learning_rate=0.001",
                             " --set training.seed=2", " --set pipeline.schedule=pipedream --checkpoint-every 1"}) {
        const std::string said = error_of(std::string("run four.yaml --checkpoint kept") + more, 2);
        EXPECT_TRUE(says(said, "'kept' has checkpoints already: step-00000004, step-00000002\n")) << said;
        EXPECT_TRUE(says(said, help)) << said;
    }
    run_well("run four.yaml --steps 3 --checkpoint other");
    for (const auto& [resume, fact] :
         {std::pair("other", help.c_str()), std::pair("kept/step-00000002", "has a later checkpoint, step-00000004")}) {
        const Said said = run(std::string("run four.yaml --checkpoint kept --resume ") + resume);
        EXPECT_EQ(said.code, 2);
        EXPECT_TRUE(says(said.err, fact)) << said.err;
    }
    EXPECT_EQ(read("kept/step-00000004/complete"), before);
    run_well("run four.yaml --checkpoint ./kept/ --resume kept");
    EXPECT_EQ(run_well("validate kept --json").json()["step"], 6);
    std::filesystem::create_directories(file("empty"));
    run_well("run four.yaml --checkpoint empty --resume kept --steps 7");
}

TEST_F(Resume, RefusesASecondRunInTheSameFolder) {
    write("two.sh", R"(
"$1" run four.yaml --set cluster.devices=1 --steps 1000000 --checkpoint kept --checkpoint-every 1 >first.out 2>first.err &
first=$!
for i in $(seq 3000); do ls kept/step-* >/dev/null 2>&1 && break; sleep 0.01; done
"$1" run four.yaml --set cluster.devices=1 --checkpoint kept --resume kept --steps 1000001 >second.out 2>second.err
echo $? >code
"$1" launch -n 2 --launcher false four.yaml --set cluster.devices=1 --steps 1000001 --checkpoint kept --checkpoint-every 1 --resume kept 2>third.err
kill -KILL $first
wait $first
echo $first >process
)");
    ASSERT_EQ(std::system(fmt::format("cd '{}' && sh two.sh '{}' 2>/dev/null", file("").string(), binary_).c_str()), 0);
    EXPECT_EQ(read("code"), "1\n");
    const std::string process = read("process");
    const std::string fact =
        fmt::format("'kept' is in use by another run: process {} on host ", process.substr(0, process.find('\n')));
    EXPECT_TRUE(says(read("second.err"), fact)) << read("second.err");
    EXPECT_TRUE(says(read("third.err"), fact)) << read("third.err");
    EXPECT_FALSE(says(read("third.err"), "restart")) << read("third.err");
    EXPECT_EQ(read("second.out"), "");
    const int step = run_well("validate kept --json").json()["step"];  // the lock ended with the process
    run_well(fmt::format("run four.yaml --set cluster.devices=1 --checkpoint kept --resume kept --steps {}", step + 2));
    EXPECT_FALSE(std::filesystem::exists(file("kept/pipewright.lock")));
}

// The curve begins after the samples of the checkpoint, and steps that are twice in a log are told.
TEST_F(Resume, ContinuesItsCurveAndItsLog) {
    run_well("run four.yaml --checkpoint kept --checkpoint-every 2 --keep 9 --log log.jsonl --losses whole.json");
    const Said rest = run_well("run four.yaml --resume kept/step-00000002 --log log.jsonl --losses rest.json");
    const Json all = Json::parse(read("whole.json"))["curves"][0], later = Json::parse(read("rest.json"))["curves"][0];
    EXPECT_EQ(later["x"], Json(std::vector<double>({48, 64, 80, 96})));
    ASSERT_EQ(all["x"].size(), 6u);
    for (std::size_t k = 0; k < 4; ++k) {
        EXPECT_EQ(later["x"][k], all["x"][k + 2]);
        EXPECT_EQ(later["values"][k], all["values"][k + 2]);
    }
    EXPECT_TRUE(says(rest.err, "note: 'log.jsonl' has steps up to 6 already: 3 to 6 are in it again")) << rest.err;
    const Said next = run_well("run four.yaml --steps 8 --resume kept/step-00000006 --log log.jsonl");
    EXPECT_FALSE(says(next.err, "already")) << next.err;
    write("other.log", "no JSON\n");
    EXPECT_FALSE(says(run_well("run four.yaml --resume kept/step-00000002 --log other.log").err, "already"));
}

// Without its last checkpoint the end of the training is lost and the run fails; a lost intermediate checkpoint is a
// warning.
TEST_F(Resume, ARunWithoutItsLastCheckpointFails) {
    run_well("run four.yaml --steps 2 --checkpoint kept --checkpoint-every 1");
    write("full.sh", R"(
trap '' XFSZ
ulimit -f 16
"$1" run four.yaml --steps 4 --checkpoint kept --checkpoint-every 1 --resume kept >out 2>err
echo $? >code
)");
    ASSERT_EQ(std::system(fmt::format("cd '{}' && sh full.sh '{}'", file("").string(), binary_).c_str()), 0);
    EXPECT_EQ(read("code"), "1\n") << read("err");
    EXPECT_TRUE(says(read("err"), "warning: no checkpoint of step 3: cannot write 'kept/step-00000003/model"))
        << read("err");
    EXPECT_TRUE(says(read("err"),
                     "error: the training since the last checkpoint is lost: no checkpoint of step 4: cannot write"))
        << read("err");
    EXPECT_TRUE(says(read("err"), "File too large\n  help: continue with --resume kept\n")) << read("err");
    EXPECT_TRUE(says(read("out"), "weights")) << read("out");  // the results are there
    EXPECT_EQ(run_well("validate kept --json").json()["step"], 2);
    // a folder that cannot be made is found before the run
    const std::string said = error_of("run four.yaml --checkpoint /proc/kept", 1);
    EXPECT_TRUE(says(said, "cannot ") && says(said, "/proc")) << said;
    EXPECT_FALSE(says(said, "the training since")) << said;
}

TEST_F(Resume, IsExplainedWhenARunFails) {
    const std::string diverging = "run four.yaml --steps 1000 --set training.learning_rate=1e6";
    const std::string said = error_of(diverging + " --checkpoint kept --checkpoint-every 1", 1);
    EXPECT_TRUE(says(said, "is not finite")) << said;
    EXPECT_EQ(says(said, "help: continue with --resume kept"), std::filesystem::exists(file("kept"))) << said;
    EXPECT_FALSE(says(error_of(diverging, 1), "--resume"));
}

// The values fit their hashes: the training diverged, and nothing has changed since.
TEST_F(Resume, ReportsACheckpointWithValuesThatAreNotFinite) {
    Checkpoint checkpoint;
    checkpoint.step = 2;
    checkpoint.samples = 32;
    checkpoint.seed = 1;
    checkpoint.model = "mlp";
    checkpoint.training = "0123456789abcdef";
    checkpoint.parameters = checkpoint.states = {{"fc1.weight", {2}, {1, 2}}};
    write_checkpoint(file("kept").string(), checkpoint);
    EXPECT_TRUE(says(run_well("validate kept").out, "ok: checkpoint"));
    checkpoint.states[0].values[1] = std::numeric_limits<float>::infinity();
    write_checkpoint(file("kept").string(), checkpoint);
    EXPECT_TRUE(says(error_of("validate kept", 4), "values that are not finite: fc1.weight, its momentum"));
    checkpoint.parameters[0].values[0] = std::numeric_limits<float>::quiet_NaN();
    write_checkpoint(file("kept").string(), checkpoint);
    EXPECT_TRUE(says(error_of("validate kept", 4), "values that are not finite: fc1.weight\n"));
    const Said said = run("validate kept --json");
    EXPECT_EQ(said.code, 4);
    EXPECT_EQ(said.json()["ok"], false);
}

// A script starts background programs so that they ignore SIGINT, and nohup does the same with SIGHUP.
TEST_F(Resume, ASignalThatIsIgnoredStaysIgnored) {
    write("deaf.sh", R"(
trap '' INT
"$1" run four.yaml --steps 300 --checkpoint all >end.out 2>end.err &
for i in $(seq 3000); do [ -e all/pipewright.lock ] && break; sleep 0.01; done
kill -INT $!
wait $!
echo $? >code
)");
    ASSERT_EQ(std::system(fmt::format("cd '{}' && sh deaf.sh '{}'", file("").string(), binary_).c_str()), 0);
    EXPECT_EQ(read("code"), "0\n") << read("end.err");
    EXPECT_EQ(run_well("validate all --json").json()["step"], 300);
}

TEST_F(Resume, ASignalEndsTheRunAfterItsStep) {
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
