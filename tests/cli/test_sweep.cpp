// simulate with a block `sweep`.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

#include <map>

namespace pw {

namespace {

constexpr const char* kSweep = R"(
workload: {model: uniform, stages: 4, forward: 1 us, backward_input: 1 us, backward_weight: 1 us, activation: 1 MB}
cluster: {devices: 4, memory: 10 MB}
pipeline: {schedule: gpipe, micro_batches: 3}
sweep:
  pipeline.micro_batches: [2, 8, 16]
  pipeline.schedule: [gpipe, 1f1b]
)";

class Sweep : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("sweep.yaml", kSweep);
    }
};

}  // namespace

// gpipe and 1f1b take m + p - 1 slots of 3 us; gpipe holds m activations, 1f1b p.
TEST_F(Sweep, EveryCombinationIsSimulatedInTheOrderOfTheFile) {
    const Json json = run_well("simulate sweep.yaml --json").json();
    EXPECT_EQ(json["schema_version"], 1);
    ASSERT_EQ(json["points"].size(), 6u);
    std::size_t i = 0;
    for (const int micro_batches : {2, 8, 16})
        for (const char* schedule : {"gpipe", "1f1b"}) {
            const Json& point = json["points"][i++];
            EXPECT_EQ(point["set"], (Json{{"pipeline.micro_batches", micro_batches}, {"pipeline.schedule", schedule}}));
            const int held = schedule == std::string("gpipe") ? micro_batches : std::min(4, micro_batches);
            EXPECT_EQ(point["step_time_ns"], (micro_batches + 3) * 3000);
            EXPECT_NEAR(point["bubble_rate"].get<double>(), 3.0 / (micro_batches + 3), 1e-12);
            EXPECT_EQ(point["peak_memory_bytes"], held * 1'000'000);
            EXPECT_EQ(point["fits"], held <= 10);
            EXPECT_EQ(point["schedule"], schedule);
        }
    EXPECT_EQ(json["best"]["set"]["pipeline.schedule"], "1f1b");
    EXPECT_EQ(json["best"], json["points"][5]);
    // A point equals a simulation with its overrides; the sweep precedes the user's own overrides.
    const Json alone = run_well("simulate sweep.yaml --json --set sweep= --set pipeline.micro_batches=8").json();
    const Json other = run_well("simulate sweep.yaml --json --set pipeline.micro_batches=5").json();
    EXPECT_EQ(other, json);
    EXPECT_EQ(alone["plan_hash"], json["points"][2]["plan_hash"]);
}

TEST_F(Sweep, ATableAndItsBestLine) {
    const Said said = run_well("simulate sweep.yaml");
    EXPECT_TRUE(said.out.starts_with(
        "micro_batches  schedule  step time  samples/s  bubble  peak memory  reserved of 10 MB  fits\n"
        "2                 gpipe   15.00 us"))
        << said.out;
    EXPECT_TRUE(contains(
        said.out, "16                gpipe   57.00 us  2.807e+05  15.8 %        16 MB              16 MB   no\n"));
    EXPECT_TRUE(contains(said.out, "\nbest: micro_batches 16, schedule 1f1b: 2.807e+05 samples/s, step time 57.00 us"));
    EXPECT_EQ(said.err, "");
    EXPECT_TRUE(contains(run_well("simulate sweep.yaml --set 'cluster.memory=1 kB'").out, "\nbest: none fits\n"));
}

// zb-v takes two stages per device.
TEST_F(Sweep, AnImpossiblePointIsLeftOut) {
    const std::string mixed = " --set 'sweep={pipeline.schedule: [zb-v, 1f1b]}'";
    const Json json = run_well("simulate sweep.yaml --json" + mixed).json();
    EXPECT_TRUE(json["points"][0].contains("error"));
    EXPECT_FALSE(json["points"][0].contains("step_time_ns"));
    EXPECT_EQ(json["best"]["set"]["pipeline.schedule"], "1f1b");
    const std::string row = json["points"][0]["error"];
    expect_says(run_well("simulate sweep.yaml" + mixed).out, {"\nleft out: zb-v: " + row.substr(row.find("places"))});
    const std::string all = error_of("simulate sweep.yaml --set 'sweep={pipeline.schedule: [zb-v]}'", 2);
    EXPECT_TRUE(contains(all, row)) << all;
    EXPECT_TRUE(contains(all, "none of 1 points can be simulated; this is the first, schedule zb-v")) << all;
}

TEST_F(Sweep, AllSchedulesAreASweep) {
    const Json all = run_well("simulate uniform.yaml --set 'sweep={pipeline.schedule: all}' --json").json();
    const Json ranked = run_well("simulate uniform.yaml --schedules all --json").json();
    EXPECT_GT(all["points"].size(), 10u);
    EXPECT_EQ(all["points"].size(), ranked["points"].size());
    EXPECT_EQ(all["best"], ranked["best"]);
}

TEST_F(Sweep, MistakesHaveTheirPlace) {
    const std::string unknown = error_of("simulate sweep.yaml --set 'sweep={pipeline.micro_batchs: [2, 4]}'", 2);
    EXPECT_TRUE(contains(unknown, "unknown key 'micro_batchs' in 'pipeline'")) << unknown;
    EXPECT_TRUE(contains(unknown, "did you mean 'micro_batches'?")) << unknown;
    EXPECT_TRUE(contains(error_of("simulate sweep.yaml --trace a.json", 2), "sweep.yaml:6:3"));
    EXPECT_TRUE(contains(error_of("simulate sweep.yaml --plot a.gif", 2), ".svg .png"));
    EXPECT_TRUE(contains(error_of("simulate sweep.yaml --plot a.txt --x stages", 2), "pipeline.micro_batches"));
    EXPECT_TRUE(contains(error_of("simulate sweep.yaml --plot a.txt --x schedule --set sweep=", 2), "no block sweep"));
    EXPECT_TRUE(contains(error_of("simulate sweep.yaml --y bubble", 2), "--plot"));
    std::string values = "0";
    for (int i = 1; i < 101; ++i)
        values += fmt::format(", {}", i);
    const std::string many = fmt::format(
        "simulate sweep.yaml --set 'sweep={{training.seed: [{0}], "
        "training.momentum: [{0}]}}'",
        values);
    EXPECT_TRUE(contains(error_of(many, 2), "'sweep' has more than 10000 points"));
    EXPECT_EQ(run("validate sweep.yaml").code, 0);  // other commands ignore the block
}

TEST_F(Sweep, ThePictureHasALineForEachCombinationOfOtherKeys) {
    run_well("simulate sweep.yaml --plot sweep.json");
    const Json json = Json::parse(read("sweep.json"));
    EXPECT_EQ(json["x"], "micro_batches");
    EXPECT_EQ(json["y"], "samples/s");
    ASSERT_EQ(json["curves"].size(), 4u);
    EXPECT_EQ(json["curves"][0]["title"], "gpipe");
    EXPECT_EQ(json["curves"][2]["x"], Json{16});  // over the memory limit
    EXPECT_EQ(json["curves"][3]["labels"], Json{"best: 1f1b"});
    run_well("simulate sweep.yaml --y step-time --plot steps.json");
    const Json steps = Json::parse(read("steps.json"));
    EXPECT_EQ(steps["curves"][1]["x"], (Json{2, 8, 16}));
    EXPECT_EQ(steps["curves"][1]["values"], (Json{15000, 33000, 57000}));
    const std::string links =
        " --set 'sweep={pipeline.schedule: [1f1b], cluster.link.bandwidth: [10 GB/s, 1 GB/s, "
        "inf, 100 GB/s]}' --plot ";
    EXPECT_TRUE(contains(run_well("simulate sweep.yaml" + links + "links.json").err, "inf has no place along x"));
    EXPECT_EQ(Json::parse(read("links.json"))["curves"][0]["x"], (Json{1e9, 1e10, 1e11}));
    run_well("simulate sweep.yaml" + links + "links.html");
    EXPECT_TRUE(contains(read("links.html"), "\"bandwidth in GB/s\""));
}

TEST_F(Sweep, TheExampleOfTheDocumentationWorks) {
    const std::string example = PIPEWRIGHT_SOURCE_DIR "/workloads/configs/sweep.yaml";
    const Json json = run_well("simulate '" + example + "' --json").json();
    EXPECT_EQ(json["points"].size(), 15u);
    EXPECT_TRUE(json["best"].is_object());
    const Json study = run_well("simulate '" PIPEWRIGHT_SOURCE_DIR "/examples/across_datacentres.yaml' --json").json();
    EXPECT_EQ(study["points"].size(), 60u);
}

// pipedream-2bw never waits for a flush: it is faster, but trains differently.
TEST_F(Sweep, AsynchronousPlansAreMarkedAndNotTheBest) {
    const std::string both =
        "simulate sweep.yaml --set 'sweep={pipeline.schedule: [1f1b, pipedream-2bw]}' "
        "--set cluster.memory='1 GB' --set pipeline.micro_batches=8";
    const Json json = run_well(both + " --json").json();
    EXPECT_GT(json["points"][1]["samples_per_second"], json["points"][0]["samples_per_second"]);
    EXPECT_EQ(json["points"][0]["asynchronous"], false);
    EXPECT_EQ(json["points"][1]["asynchronous"], true);
    EXPECT_EQ(json["best"], json["points"][0]);
    EXPECT_EQ(json["best_asynchronous"], json["points"][1]);
    const std::string out = run_well(both).out;
    EXPECT_TRUE(contains(out, "\nbest: schedule 1f1b: ")) << out;
    EXPECT_TRUE(contains(out, "\nbest asynchronous: schedule pipedream-2bw: ")) << out;
    EXPECT_TRUE(contains(out, "yes (asynchronous, 8 samples an update)\n")) << out;
    const std::string alone =
        "simulate sweep.yaml --set 'sweep={pipeline.micro_batches: [4, 8]}' "
        "--set pipeline.schedule=pipedream-2bw --set cluster.memory='1 GB'";
    EXPECT_FALSE(run_well(alone + " --json").json()["best"].is_null());
    EXPECT_TRUE(contains(run_well(alone).out, "\nbest (asynchronous, as every plan here): micro_batches "));
}

}  // namespace pw
