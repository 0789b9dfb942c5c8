// The additional answers of simulate about one plan.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"
#include "workloads/units.h"

#include <algorithm>
#include <numeric>

namespace pw {
namespace {

constexpr const char* kThreeDevices = R"(
workload: {model: uniform, stages: 3, forward: [1 ms, 3 ms, 2 ms], backward_input: 2 ms, backward_weight: 1 ms, output: 1 MB}
cluster: {devices: 3, link: {latency: 10 us, bandwidth: 1 GB/s}}
pipeline: {schedule: 1f1b, micro_batches: 5}
)";

class AnswersOfSimulate : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("cfg.yaml", kThreeDevices);
    }
};

TEST_F(AnswersOfSimulate, ExplainAllIdleTimeAndTheWholeStep) {
    const Json json = run_well("simulate cfg.yaml --explain --json").json();
    const Json& explanation = json["explanation"];
    for (std::size_t device = 0; device < 3; ++device) {
        Ns idle = 0;
        for (const auto& [cause, time] : explanation["idle"][device].items())
            idle += time.get<Ns>();
        EXPECT_EQ(idle, json["devices"][device]["idle_ns"]) << device;
    }
    Ns path = 0;
    for (const Json& time : explanation["critical_ns"])
        path += time.get<Ns>();
    for (const Json& link : explanation["critical_links"])
        path += link["time_ns"].get<Ns>();
    EXPECT_EQ(path, json["makespan_ns"]);
    // Device 1 waits for its first input: F of device 0, 1 MB at 1 GB/s, and the latency.
    EXPECT_EQ(explanation["idle"][1]["warm_up_ns"], 1'000'000 + 1'000'000 + 10'000);
    EXPECT_TRUE(contains(run_well("simulate cfg.yaml --explain").out, "on the critical path"));
}

// The bubble of four equal stages, 3 (F + B), counts as imbalance of no stage.
TEST_F(AnswersOfSimulate, ABubbleOfEqualStagesIsNoImbalance) {
    const Json json = run_well("simulate uniform.yaml --explain --json").json();
    for (const Json& idle : json["explanation"]["idle"])
        EXPECT_EQ(idle["imbalance_ns"], 0);
    EXPECT_EQ(json["explanation"]["idle"][0]["dependency_ns"], 9000);
    const std::string text = run_well("simulate uniform.yaml --explain").out;
    expect_says(text, {"dependency  imbalance", "exchange"});
}

TEST_F(AnswersOfSimulate, WhatIfIsTheSimulationWithThatValue) {
    const Json json =
        run_well("simulate cfg.yaml --json --what-if pipeline.micro_batches=9 --what-if pipeline.schedule=gpipe")
            .json();
    ASSERT_EQ(json["what_if"].size(), 3u);
    const char* settings[] = {"--set pipeline.micro_batches=9", "--set pipeline.schedule=gpipe",
                              "--set pipeline.micro_batches=9 --set pipeline.schedule=gpipe"};
    for (std::size_t row = 0; row < 3; ++row) {
        const Json alone = run_well(std::string("simulate cfg.yaml --json ") + settings[row]).json();
        EXPECT_EQ(json["what_if"][row]["step_time_ns"], alone["step_time_ns"]);
        const double now = json["step_time_ns"], then = alone["step_time_ns"];
        EXPECT_NEAR(json["what_if"][row]["change"].get<double>(), then / now - 1, 1e-12);
    }
    const Json some =
        run_well("simulate cfg.yaml --json --what-if cluster.devices=2 --what-if pipeline.micro_batches=9").json();
    EXPECT_TRUE(contains(some["what_if"][0]["error"].get<std::string>(), "3 stages on 2 devices"));
    EXPECT_TRUE(some["what_if"][1].contains("step_time_ns"));
    const Said said = run_well("simulate cfg.yaml --what-if pipeline.schedule=gpip --what-if pipeline.micro_batches=9");
    EXPECT_TRUE(contains(said.out, "\npipeline.schedule=gpip: did you mean 'gpipe'?")) << said.out;
    EXPECT_TRUE(contains(error_of("simulate cfg.yaml --what-if cluster.devices=2", 2), "3 stages on 2 devices"));
}

TEST_F(AnswersOfSimulate, StragglersTakeATenthLonger) {
    const Json json = run_well("simulate cfg.yaml --json --stragglers").json();
    ASSERT_EQ(json["stragglers"].size(), 3u);
    for (std::size_t device = 0; device < 3; ++device) {
        std::string speeds = "cluster.devices=[{},{},{}]";
        speeds.replace(speeds.find("{}", 17 + 3 * device), 2, "{speed: 0.90909090909090909}");
        const Json alone = run_well("simulate cfg.yaml --json --set '" + speeds + "'").json();
        EXPECT_EQ(json["stragglers"][device]["step_time_ns"], alone["step_time_ns"]) << speeds;
        EXPECT_GT(json["stragglers"][device]["change"], 0);
    }
}

TEST_F(AnswersOfSimulate, SamplesAreThePredictionWithoutJitterAndRepeat) {
    const Json still = run_well("simulate cfg.yaml --json --samples 20 --jitter lognormal:0").json();
    for (const char* part : {"mean", "min", "p05", "p50", "p95", "p99", "max"})
        EXPECT_EQ(still["samples"]["step_time_ns"][part], still["step_time_ns"]) << part;
    const std::string command = "simulate cfg.yaml --json --samples 100 --jitter lognormal:0.2 --seed ";
    const Json json = run_well(command + "5").json();
    EXPECT_EQ(json, run_well(command + "5").json());
    EXPECT_NE(json, run_well(command + "6").json());
    const auto slowest = json["samples"]["slowest"].get<std::vector<double>>();
    EXPECT_NEAR(std::accumulate(slowest.begin(), slowest.end(), 0.0), 1, 1e-12);
    EXPECT_GT(slowest[1], 0.9);  // 6 ms of work against 4 and 5
}

TEST_F(AnswersOfSimulate, SlackIsOneRowPerTask) {
    const Json json = run_well("simulate cfg.yaml --json --slack slack.csv").json();
    const std::string text = read("slack.csv");
    EXPECT_TRUE(text.starts_with("device,step,task,slack_ns\n0,0,0F0,0\n"));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), json["tasks"].get<int>() + 1);
}

TEST_F(AnswersOfSimulate, AreRefusedForSweeps) {
    expect_says(error_of("simulate cfg.yaml --jitter lognormal:0.1", 2), {"--samples"});
    expect_says(error_of("simulate cfg.yaml --samples 10 --jitter gamma:1", 2), {"gamma:1", "lognormal:SIGMA"});
    expect_says(error_of("simulate cfg.yaml --samples 10 --jitter lognormal:2", 2), {"lognormal:2", "from 0 to 1"});
    expect_says(error_of("simulate cfg.yaml --samples 10 --jitter profile", 2),
                {"these costs are uniform", "lognormal"});
    expect_says(error_of("simulate cfg.yaml --samples 0", 2), {"--samples"});
    expect_says(error_of("simulate cfg.yaml --explain --set 'sweep={pipeline.micro_batches: [4, 8]}'", 2),
                {"has several", "take one point"});
}

}  // namespace
}  // namespace pw
