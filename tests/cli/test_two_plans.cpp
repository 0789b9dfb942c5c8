// compare of two files that need not be of one plan.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <numeric>

namespace pw {

namespace {

class TwoPlans : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        for (const char* schedule : {"gpipe", "1f1b"})
            write(std::string(schedule) + ".yaml",
                  std::string("workload: {model: uniform, stages: 4, forward: 1 us, backward_input: 1 us, "
                              "backward_weight: 1 us, activation: 1 MB, output: 1 kB}\n"
                              "cluster: {devices: 4, link: {bandwidth: 1 GB/s, latency: 100 ns}}\n"
                              "run: {backend: emulated}\n"
                              "pipeline: {micro_batches: 8, schedule: ") +
                      schedule + "}\n");
    }
};

}  // namespace

TEST_F(TwoPlans, OfConfigsAreShownNextToEachOther) {
    const Json json = run_well("compare gpipe.yaml 1f1b.yaml --json").json();
    ASSERT_EQ(json["config"].size(), 1u) << json["config"];
    EXPECT_EQ(json["config"][0], (Json{{"key", "pipeline.schedule"}, {"first", "gpipe"}, {"second", "1f1b"}}));
    for (int side = 0; side < 2; ++side) {
        const Json& plan = json["plans"][side];
        const Json alone = run_well(std::string("simulate ") + (side == 0 ? "gpipe" : "1f1b") + ".yaml --json").json();
        EXPECT_EQ(plan["step_time_ns"], alone["step_time_ns"]);
        EXPECT_EQ(plan["devices"], alone["devices"]);
        // the parts are means over the devices, rounded down
        std::int64_t sum = 0;
        for (const auto& [name, part] : plan["parts"].items()) {
            EXPECT_GE(part, 0) << name;
            sum += part.get<std::int64_t>();
        }
        EXPECT_NEAR(static_cast<double>(sum), plan["makespan_ns"].get<double>(), 5);
    }
    const std::string out = run_well("compare gpipe.yaml 1f1b.yaml").out;
    expect_says(out, {"key of the config  gpipe.yaml  1f1b.yaml\npipeline.schedule  gpipe       1f1b\n", "step time",
                      "peak memory, device 3", "computing", "makespan"});
    run_well("compare gpipe.yaml 1f1b.yaml --plot both.txt");
    expect_says(read("both.txt"), {"gpipe.yaml: predicted, gpipe", "1f1b.yaml: predicted, 1f1b"});
}

TEST_F(TwoPlans, TakeOverridesForBothConfigs) {
    const Json json = run_well("compare gpipe.yaml 1f1b.yaml --json --set pipeline.micro_batches=4").json();
    for (const Json& plan : json["plans"])
        EXPECT_EQ(plan["micro_batches"], 4);
    EXPECT_TRUE(contains(error_of("compare gpipe.yaml 1f1b.yaml --max-error 5%", 2), "one plan"));
}

TEST_F(TwoPlans, OfTracesNeedNoSharedPlan) {
    for (const char* schedule : {"gpipe", "1f1b"})
        run_well(std::string("simulate ") + schedule + ".yaml --trace " + schedule + ".json");
    const Said said = run_well("compare gpipe.json 1f1b.json --json");
    EXPECT_TRUE(contains(said.err, "note: these are different plans: ")) << said.err;
    EXPECT_EQ(said.json()["plans"][1]["schedule"], "1f1b");
    EXPECT_EQ(said.json()["config"][0]["key"], "pipeline.schedule");
    // a trace of the same plan is compared as before
    EXPECT_EQ(run_well("compare gpipe.json gpipe.json --json").json()["step_time_error"], 0);
}

// A config in place of the predicted trace is simulated.
TEST_F(TwoPlans, OfAConfigAndItsRunAreComparedAsPredictionAndMeasurement) {
    run_well("run 1f1b.yaml --steps 2 --trace measured.json");
    const Json json = run_well("compare 1f1b.yaml measured.json --json").json();
    EXPECT_EQ(json["predicted"]["label"], "predicted");
    EXPECT_EQ(json["measured"]["label"], "measured");
    EXPECT_TRUE(json.contains("step_time_error"));
    EXPECT_TRUE(run_well("compare gpipe.yaml measured.json --json").json().contains("plans"));
}

}  // namespace pw
