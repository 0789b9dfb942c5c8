// Frozen layers on the command line: traces and plans without the backwards of some stages, profiles and runs.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <string>

namespace pw {
namespace {

using Frozen = Cli;

constexpr const char* kEncoder =
    "workload: {model: uniform, stages: 4, forward: 2 us, backward_input: 2 us, backward_weight: 1 us, output: 1 kB, "
    "frozen: [0, 1]}\n"
    "cluster: {devices: 4, link: {bandwidth: 1 GB/s, latency: 1 us}}\n"
    "pipeline: {schedule: 1f1b, micro_batches: 8}\n";

TEST_F(Frozen, HaveTracesThatAreRead) {
    write("encoder.yaml", kEncoder);
    run_well("simulate encoder.yaml --trace encoder.json");
    EXPECT_TRUE(contains(run_well("validate encoder.json").out, "ok: trace"));
    EXPECT_EQ(run_well("compare encoder.json encoder.json --json").json()["step_time_error"], 0);
    // Without one backward of stage 2 the trace is incomplete.
    const std::string backward = R"("op":"B","stage":2,"microbatch":3)", half = R"("op":"W","stage":2,"microbatch":3)";
    std::string text = read("encoder.json");
    const std::size_t at = text.find(backward);
    ASSERT_NE(at, std::string::npos);
    write("part.json", text.replace(at, backward.size(), half));
    EXPECT_TRUE(contains(error_of("validate part.json", 2), "2B3: step 0 has neither this task"));
}

TEST_F(Frozen, HavePlansInFiles) {
    write("encoder.yaml", kEncoder);
    const Json own = run_well("simulate encoder.yaml --json").json();
    run_well("plan encoder.yaml --format csv -o plan.csv");
    EXPECT_TRUE(contains(read("plan.csv"), "0F0,0F1,0F2,0F3,0F4,0F5,0F6,0F7\n1F0,1F1"));
    const Said valid = run_well("validate plan.csv");
    EXPECT_TRUE(contains(valid.err, "only forwards of stages 0, 1")) << valid.err;
    const std::string from_file = "simulate encoder.yaml --json --set pipeline.schedule=plan.csv";
    EXPECT_EQ(run_well(from_file).json()["step_time_ns"], own["step_time_ns"]);
    EXPECT_TRUE(contains(error_of(from_file + " --set workload.frozen=[0]", 2),
                         "has no backward of stage 1, and the stage or a stage before it is trained"));
    run_well("plan encoder.yaml --set workload.frozen= --format csv -o whole.csv");  // its first backwards are dropped
    EXPECT_EQ(run_well("simulate encoder.yaml --json --set pipeline.schedule=whole.csv").json()["step_time_ns"],
              own["step_time_ns"]);
}

TEST_F(Frozen, AreMeasuredAsIfTrained) {
    const std::string frozen = " --set workload.frozen=[fc1]";
    run_well("profile mlp.yaml -o profile.yaml" + frozen);
    const std::string simulate = "simulate mlp.yaml --json --set cluster.profile=profile.yaml";
    const Json whole = run_well(simulate).json(), part = run_well(simulate + frozen).json();
    EXPECT_LT(part["devices"][0]["busy_ns"].get<double>(), whole["devices"][0]["busy_ns"].get<double>());
}

// The predicted memory is the measured memory, and a trace of the run without some backwards is complete.
TEST_F(Frozen, RunsAreCompared) {
    write("encoder.yaml", kEncoder);
    for (const std::string config :
         {"mlp.yaml --set run.backend=reference --set workload.frozen=[fc1]",
          "mlp.yaml --set run.backend=cpu --set workload.frozen=[fc2]", "encoder.yaml --set run.backend=emulated"}) {
        EXPECT_EQ(run_well("compare " + config + " --json").json()["peak_memory_error"], 0) << config;
        run_well("run " + config + " --trace run.json");
        EXPECT_TRUE(contains(run_well("validate run.json").out, "ok: trace")) << config;
    }
}

}  // namespace
}  // namespace pw
