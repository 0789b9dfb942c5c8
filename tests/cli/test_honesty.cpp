// Facts without which numbers mislead: they are printed to stderr with the numbers, or instead of them.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

namespace pw {

namespace {

std::string replaced(std::string text, const std::string& part, const std::string& by) {
    const std::size_t at = text.find(part);
    EXPECT_NE(at, std::string::npos) << part;
    return at == std::string::npos ? text : text.replace(at, part.size(), by);
}

const std::string kBf16 = " --set run.backend=cuda --set training.precision=bf16";

}  // namespace

// The profile is of a machine a thousand times as slow.
TEST_F(Cli, AStoredProfileOfAnotherMachineHasAWayOutFirst) {
    const std::string reference = " --set run.backend=reference";
    run_well("profile mlp.yaml -o profile.yaml" + reference);
    std::string profile = read("profile.yaml");
    for (std::size_t at = profile.find(" ns"); at != std::string::npos; at = profile.find(" ns", at + 1))
        profile.replace(at, 3, " us");  // a machine that is a thousand times slower
    write("slow.yaml", profile);
    const std::string compare = "compare mlp.yaml --why --set cluster.profile=slow.yaml" + reference;
    expect_says(run_well(compare).out,
                {"\nFirst: the costs of cluster.profile are of another time: leave cluster.profile out, or add "
                 "--interleave 8, and costs are measured during the run.\n"});
    EXPECT_FALSE(contains(run_well(compare + " --interleave 2").out, "\nFirst: "));
}

// In fp32 a GPU has a fraction of the rate at which transformers are trained.
TEST_F(Cli, TheDefaultPrecisionOfATransformerIsNoted) {
    write("llama.yaml",
          "workload: {model: llama-3.2-1b, sequence_length: 4096}\n"
          "cluster: {hosts: 1, devices_per_host: 4, device: h100-sxm-80}\n"
          "search: {mini_batch: 8, micro_batch_sizes: [1], tensor: [1], context: [1]}\n");
    const std::string note =
        "note: no training.precision: predicted in fp32; for mixed precision write training: "
        "{precision: bf16}";
    EXPECT_TRUE(contains(run_well("search llama.yaml -o best.yaml").err, note));
    EXPECT_FALSE(contains(run_well("search llama.yaml --set training.precision=bf16").err, "no training.precision"));
    write("gpt.yaml", "workload: {model: gpt}\ncluster: {devices: 2, device: h100-sxm-80}\n");
    EXPECT_TRUE(contains(run_well("simulate gpt.yaml").err, note));
    EXPECT_TRUE(contains(run_well("simulate gpt.yaml --schedules gpipe,1f1b").err, note));
    EXPECT_FALSE(contains(run_well("simulate gpt.yaml --set training.precision=bf16").err, "no training.precision"));
    EXPECT_FALSE(contains(run_well("simulate mlp.yaml").err, "no training.precision"));
}

TEST_F(Cli, PredictionsNeedCostsOfTheirPrecision) {
    for (const char* command : {"simulate", "search"}) {
        const std::string error = error_of(command + std::string(" mlp.yaml") + kBf16, 2);
        EXPECT_TRUE(contains(error, "analytic costs are those of fp32, not of bf16")) << error;
        EXPECT_TRUE(contains(error, "help: ") && contains(error, "pipewright profile CONFIG")) << error;
    }
    run_well("simulate mlp.yaml --set run.backend=cuda");
    const Said valid = run_well("validate mlp.yaml --json" + kBf16);
    EXPECT_EQ(valid.json()["ok"], true);
    EXPECT_TRUE(valid.json()["fits"].is_null());
    EXPECT_TRUE(contains(valid.err, "memory is not checked")) << valid.err;
}

TEST_F(Cli, AProfilePredictsItsOwnPrecisionOnly) {
    run_well("profile mlp.yaml -o cpu.yaml --set run.backend=reference");
    const std::string text = read("cpu.yaml"), with = " --set cluster.profile=";
    const std::string cuda = replaced(text, "backend: \"reference\"", "backend: \"cuda\"");
    write("bf16.yaml", replaced(cuda, "precision: fp32", "precision: bf16"));
    write("unknown.yaml", replaced(cuda, "  precision: fp32\n", ""));
    run_well("simulate mlp.yaml" + kBf16 + with + "bf16.yaml");
    const std::string other = "simulate mlp.yaml --set run.backend=cuda --set training.precision=tf32" + with;
    EXPECT_TRUE(contains(error_of(other + "bf16.yaml", 2), "was measured in bf16, but the config runs in tf32"));
    EXPECT_TRUE(contains(error_of(other + "unknown.yaml", 2), "does not say its precision"));
    EXPECT_TRUE(contains(error_of("simulate mlp.yaml" + kBf16 + with + "cpu.yaml", 2), "was measured in fp32"));
}

TEST_F(Cli, AProfileOfADisturbedMachineIsNoted) {
    run_well("profile mlp.yaml -o profile.yaml --set run.backend=reference");
    const std::string quiet = of_a_quiet_machine(read("profile.yaml"));
    write("quiet.yaml", quiet);
    write("disturbed.yaml", replaced(quiet, "  dispatch:", "  cpu_share: 0.39\n  dispatch:"));
    const std::string simulate = "simulate mlp.yaml --set run.backend=reference --set cluster.profile=";
    EXPECT_EQ(run_well(simulate + "quiet.yaml").err, "");
    EXPECT_TRUE(contains(run_well(simulate + "disturbed.yaml").err,
                         "note: the profile was measured with 39 % of its cores, in parallel with other programs"));
}

TEST_F(Cli, AProfileOfAnotherOptimizerIsNoted) {
    run_well("profile mlp.yaml -o sgd.yaml --set run.backend=reference");
    EXPECT_FALSE(contains(read("sgd.yaml"), "optimizer:"));
    run_well("profile mlp.yaml -o adamw.yaml --set run.backend=reference --set training.optimizer=adamw");
    EXPECT_TRUE(contains(read("adamw.yaml"), "  optimizer: adamw\n"));
    const std::string simulate = "simulate mlp.yaml --set run.backend=reference --set training.optimizer=";
    const std::string note = "note: the profile was measured with optimizer sgd: an update by adamw is predicted";
    const std::string with = " --set cluster.profile=";
    EXPECT_TRUE(contains(run_well(simulate + "adamw" + with + "sgd.yaml").err, note));
    EXPECT_FALSE(contains(run_well(simulate + "adamw" + with + "adamw.yaml").err, "optimizer"));
    EXPECT_FALSE(contains(run_well(simulate + "sgd" + with + "sgd.yaml").err, "optimizer"));
}

TEST_F(Cli, AProfileOfOtherConvolutionsIsNoted) {
    run_well("profile mlp.yaml -o cpu.yaml --set run.backend=reference");
    const std::string timed =
        "convolutions:\n  - {pass: forward, samples: 1, channels: 8, height: 6, width: 6, outputs: 8, kernel: 3, "
        "stride: 1, padding: 1, multiprocessors: 132, plan: 1}\nlayers:\n";
    const std::string cuda = replaced(read("cpu.yaml"), "backend: \"reference\"", "backend: \"cuda\"");
    write("cuda.yaml", replaced(cuda, "layers:\n", timed));
    const std::string simulate = "simulate mlp.yaml --set run.backend=cuda --set cluster.profile=cuda.yaml";
    const std::string note = "note: the profile was measured with the fastest convolutions; with run.deterministic";
    EXPECT_TRUE(contains(run_well(simulate).err, note));
    EXPECT_FALSE(contains(run_well(simulate + " --set run.deterministic=false").err, note));
}

TEST_F(Cli, TimesOfUniformAreThoseOfAMicroBatch) {
    EXPECT_EQ(run_well("simulate uniform.yaml").err, "");
    const Said two = run_well("simulate uniform.yaml --set pipeline.micro_batch_size=2");
    EXPECT_TRUE(contains(two.err, "note: the times and sizes of model: uniform are those of a micro-batch")) << two.err;
    for (const char* axes : {"{pipeline.micro_batch_size: [1, 2]}",
                             "{pipeline.schedule: [gpipe, 1f1b], pipeline.micro_batch_size: [1, 2]}"}) {
        const std::string error = error_of(fmt::format("simulate uniform.yaml --set 'sweep={}'", axes), 2);
        EXPECT_TRUE(contains(error, "compares micro-batches of 1 and 2 samples")) << error;
        EXPECT_TRUE(contains(error, "help: sweep other keys")) << error;
    }
    const std::string derived =
        "simulate uniform.yaml --set pipeline.mini_batch=16 --set 'pipeline.micro_batch_size=2' "
        "--set 'sweep={pipeline.schedule: [gpipe, 1f1b]}'";
    EXPECT_TRUE(contains(run_well(derived).err, "are those of a micro-batch"));
}

TEST_F(Cli, ASweepOverSizesOfAModelWithLayersIsFine) {
    EXPECT_EQ(
        run_well("simulate mlp.yaml --json --set 'sweep={pipeline.micro_batch_size: [1, 2]}'").json()["points"].size(),
        2u);
}

TEST_F(Cli, AScheduleThatEqualsAnotherOneIsNoted) {
    for (const auto& [schedule, note] : {std::pair("interleaved", "interleaved is eager-1f1b here"),
                                         {"zb1p", "zb1p is zb-h1 here"},
                                         {"bfs", "bfs is gpipe with drain: lifo here"}}) {
        const std::string set = fmt::format("simulate uniform.yaml --set pipeline.schedule={}", schedule);
        EXPECT_EQ(run_well(set).err, fmt::format("note: one stage per device: {}\n", note));
        EXPECT_EQ(run_well(set + " --set cluster.devices=2").err, "");
    }
}

TEST_F(Cli, AMissingProfileIsAMistakeForUniformToo) {
    const std::string set = "simulate uniform.yaml --set cluster.profile=";
    const std::string error = error_of(set + "nope.yaml", 2);
    EXPECT_TRUE(contains(error, "there is no file") && contains(error, "nope.yaml")) << error;
    write("some.yaml", "");
    EXPECT_TRUE(contains(run_well(set + "some.yaml").err, "cluster.profile is not used"));
}

TEST_F(Cli, ScaledTimesNameTheirOriginalSizes) {
    write("net.graph.txt",
          "node1 -- a -- forward_compute_time=4, backward_compute_time=8, activation_size=64, parameter_size=64\n"
          "node2 -- b -- forward_compute_time=4, backward_compute_time=8, activation_size=64, parameter_size=64\n"
          "\tnode1 -- node2\n");
    write("file.yaml",
          "workload: {model: net.graph.txt}\ncluster: {devices: 2}\n"
          "pipeline: {micro_batches: 4}\nsearch: {profile_batch: 64}\n");
    EXPECT_TRUE(contains(run_well("simulate file.yaml").err, "has no times for micro-batches of 1: scaled from 64\n"));
    EXPECT_EQ(run_well("simulate file.yaml --set pipeline.micro_batch_size=64").err, "");
    const Said found =
        run_well("search file.yaml --set 'search.micro_batch_sizes=[1, 2, 4]' --set search.mini_batch=64");
    EXPECT_TRUE(contains(found.err, "has no times for micro-batches of 1, 2, 4: scaled from 64\n")) << found.err;
}

TEST_F(Cli, LossesAreDrawnOverSamples) {
    run_well("run mlp.yaml --losses losses.json");
    Json curve = Json::parse(read("losses.json"));
    EXPECT_EQ(curve["x"], "samples");
    EXPECT_EQ(curve["curves"][0]["x"], (Json{8, 16, 24}));  // 3 mini-batches of 4 x 2
    run_well("run mlp.yaml --losses losses.json --set pipeline.mini_batch=7 --set pipeline.schedule=pipedream-2bw");
    EXPECT_EQ(Json::parse(read("losses.json"))["curves"][0]["x"], (Json{7, 14, 21}));
    run_well("run mlp.yaml --losses losses.json --steps 1 --set pipeline.schedule=pipedream");
    EXPECT_EQ(Json::parse(read("losses.json"))["curves"][0]["x"], (Json{2, 4, 6, 8}));
    run_well("run mlp.yaml --losses losses.txt");
    EXPECT_TRUE(contains(read("losses.txt"), "samples"));
}

// An update of pipedream has 2 samples, one of naive 8: only samples/s can be compared.
TEST_F(Cli, ComparedSchedulesShowSamplesPerSecond) {
    const std::string path = std::getenv("PATH");
    setenv("PATH", file("nowhere").c_str(), 1);
    run_well("compare mlp.yaml --schedules naive,pipedream -o study");
    setenv("PATH", path.c_str(), 1);
    const std::string table = read("study/table.txt");
    EXPECT_LT(table.find("predicted step"), table.find("predicted samples/s")) << table;
    EXPECT_LT(table.find("predicted samples/s"), table.find("predicted bubble")) << table;
    EXPECT_TRUE(contains(read("study/losses.html"), "pipedream (mean of 4 updates)"));
    EXPECT_TRUE(contains(read("study/losses.html"), ">samples<"));
    const Json points = Json::parse(read("study/accuracy.json"))["points"];
    for (const Json& point : points)
        EXPECT_GT(point["predicted"]["samples_per_second"], 0);
}

TEST_F(Cli, RunsReportTheirShareOfTheCores) {
    const Json json = run_well("run mlp.yaml --json").json();
    ASSERT_EQ(json["cpu_share"].size(), 2u);
    EXPECT_GT(json["cpu_share"][0], 0);
    EXPECT_TRUE(json.contains("stolen_share"));
    EXPECT_FALSE(run_well("run mlp.yaml --json --set run.backend=emulated").json().contains("cpu_share"));
}

TEST_F(Cli, EmulatedRunsExplainTheirNumbers) {
    const std::string run = "run uniform.yaml --set run.backend=emulated --steps 2";
    const Said quick = run_well(run);
    EXPECT_TRUE(contains(quick.err, "note: emulated devices do not train: losses, norms and weights are checksums"));
    EXPECT_TRUE(contains(quick.err, "64 of 64 tasks last less than 60.00 us, the shortest 1.000 us")) << quick.err;
    const Said slow = run_well(run + " --set workload.forward='1 ms' --set workload.backward_input='1 ms'");
    EXPECT_FALSE(contains(slow.err, "last less than")) << slow.err;
}

}  // namespace pw
