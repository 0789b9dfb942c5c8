// The command calibrate, and the commands that read the config that it writes.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <string>

namespace pw {

namespace {

class Calibrate : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("cluster.yaml",
              "workload: {model: llama-3.2-1b, sequence_length: 2048}\n"
              "cluster: {hosts: 1, devices_per_host: 4, device: h100-sxm-80}\n"
              "parallel: {tensor: 2}\n"
              "pipeline: {mini_batch: 16}\n"
              "training: {precision: bf16, optimizer: adamw}\n"
              "search: {mini_batch: 16, schedules: [1f1b], micro_batch_sizes: [1, 2]}\n");
        write("other.yaml", read("cluster.yaml") + "sweep: {parallel.zero: [0, 1]}\n");
    }
};

constexpr const char* kTwoRuns = "calibrate cluster.yaml --run '400 ms' --run parallel.tensor=4=0.5s";

}  // namespace

TEST_F(Calibrate, WritesAConfigThatPredictionsAndSearchesRead) {
    const Said said = run_well(std::string(kTwoRuns) + " -o mine.yaml");
    expect_says(said.out, {"computing", "set by the runs", "cluster.yaml", "parallel.tensor=4", "largest error"});
    const std::string note = "calibrated by 2 runs: computing ";
    const Said simulated = run_well("simulate mine.yaml --json");
    expect_says(simulated.err, {note});
    EXPECT_EQ(simulated.json()["calibration"]["runs"], 2);
    EXPECT_EQ(run_well(std::string(kTwoRuns) + " --json").json()["runs"][0]["after_ns"],
              simulated.json()["step_time_ns"]);
    expect_says(run_well("simulate mine.yaml --set 'sweep={parallel.zero: [0, 1]}'").err, {note});
    expect_says(run_well("simulate mine.yaml --what-if parallel.zero=1").err, {note});
    const Said searched = run_well("search mine.yaml --json -o best.yaml");
    expect_says(searched.err, {note});
    EXPECT_EQ(searched.json()["calibration"], simulated.json()["calibration"]);
    EXPECT_EQ(run_well("simulate best.yaml --json").json()["step_time_ns"], searched.json()["objective_ns"]);
    EXPECT_NE(run_well("search cluster.yaml --json").json()["objective_ns"], searched.json()["objective_ns"]);
}

TEST_F(Calibrate, TakesRunsOfATableAndOfOtherConfigs) {
    write("runs.csv", "parallel.tensor,step\n,400 ms\n4,0.5 s\n");
    const Json factors = run_well(std::string(kTwoRuns) + " --json").json()["factors"];
    EXPECT_EQ(run_well("calibrate cluster.yaml --runs runs.csv --json").json()["factors"], factors);
    EXPECT_EQ(run_well("calibrate cluster.yaml --run 'other.yaml=400 ms' --run parallel.tensor=4=0.5s --json")
                  .json()["factors"],
              factors);
    const Said idle = run_well("simulate cluster.yaml --set calibration.between=2");
    expect_says(idle.err, {"calibration.between has no effect: all devices are on one host"});
    expect_says(error_of("calibrate cluster.yaml --run '1 s' -o cluster.yaml", 2), {"cluster.yaml", "help: "});
}

}  // namespace pw
