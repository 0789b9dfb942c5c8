// Help, predictions, configs, lists and models on the command line.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"
#include "tests/support/result_keys.h"

#include <fmt/format.h>

#include <cmath>

namespace pw {

TEST_F(Cli, HelpAndVersionAreResults) {
    EXPECT_TRUE(contains(run_well("--help").out, "simulate"));
    EXPECT_TRUE(contains(run_well("simulate -h").out, "--trace"));
    EXPECT_TRUE(run_well("--version").out.starts_with("pipewright 0.2.0"));
    EXPECT_EQ(run_well("--version").err, "");
}

TEST_F(Cli, UsageMistakesExitWithTwoAndAWayOut) {
    for (const char* arguments :
         {"", "simulte x.yaml", "--jsn", "simulate", "simulate uniform.yaml --jsn", "simulate uniform.yaml extra.yaml",
          "list", "list colours", "plan uniform.yaml --format pdf", "run mlp.yaml --steps 0", "run mlp.yaml --steps x",
          "profile mlp.yaml", "plot", "compare", "compare a.json b.json c.json", "run mlp.yaml --resume checkpoint",
          "validate nowhere", "simulate uniform.yaml --set"})
        EXPECT_TRUE(contains(error_of(arguments, 2), "help: ")) << arguments;
    EXPECT_TRUE(contains(error_of("simulte x.yaml", 2), "did you mean 'simulate'?"));
    EXPECT_TRUE(contains(error_of("simulate uniform.yaml --jsn", 2), "did you mean '--json'?"));
    EXPECT_TRUE(
        contains(error_of("list colours", 2),
                 "list models, transformers, schedules, backends, transports, operations, devices, keys or schema"));
    EXPECT_TRUE(contains(error_of("run mlp.yaml --resume x", 2), "'x' has no checkpoint"));
}

TEST_F(Cli, MistakesOfAConfigHaveTheirPlace) {
    write("bad.yaml", "workload: {model: uniform, stages: 2, forward: 1 us}\npipeline:\n  scedule: gpipe\n");
    const std::string error = error_of("simulate bad.yaml", 2);
    EXPECT_TRUE(contains(error, "bad.yaml:3:3")) << error;
    EXPECT_TRUE(contains(error, "schedule")) << error;
    EXPECT_TRUE(contains(error_of("simulate nowhere.yaml", 2), "nowhere.yaml"));
}

TEST_F(Cli, SimulateGivesTheClosedForm) {
    const Json json = run_well("simulate uniform.yaml --json").json();
    expect_results(json, 4);
    EXPECT_EQ(json["makespan_ns"], (8 + 4 - 1) * 3000);
    EXPECT_NEAR(json["bubble_rate"].get<double>(), 3.0 / 11, 1e-12);
    EXPECT_EQ(json["schedule"], "gpipe");
    EXPECT_EQ(json["micro_batches"], 8);
    EXPECT_EQ(json["fits"], true);
    EXPECT_EQ(json["devices"][0]["peak_in_flight"], 8);
    const Json other = run_well("simulate uniform.yaml --json --set pipeline.schedule=1f1b").json();
    EXPECT_EQ(other["makespan_ns"], json["makespan_ns"]);
    EXPECT_EQ(other["devices"][0]["peak_in_flight"], 4);
    EXPECT_NE(other["plan_hash"], json["plan_hash"]);
}

// Rows of the golden table, through YAML and JSON (TF + TI + TW = 3 us, hops as given).
struct Golden {
    const char *schedule, *forward, *backward, *latency;
    int devices, micro_batches;
    int makespan_ns, first_peak;
};

TEST_F(Cli, SimulateGivesTheGoldenNumbers) {
    const Golden rows[] = {
        {"gpipe", "1 us", "1 us", "0 ns", 4, 8, 33000, 8},
        {"gpipe", "1 us", "500 ns", "0 ns", 4, 8, 22000, 8},
        {"gpipe", "1 us", "1 us", "500 ns", 4, 8, 36000, 8},
        {"1f1b", "1 us", "1 us", "0 ns", 4, 8, 33000, 4},
        {"1f1b", "1 us", "1 us", "0 ns", 2, 4, 15000, 2},
        {"1f1b", "1 us", "1 us", "0 ns", 8, 8, 45000, 8},
        {"1f1b", "1 us", "1 us", "500 ns", 4, 8, 41000, 4},
        {"1f1b", "1 us", "1 us", "1 us", 4, 8, 49000, 4},
        {"1f1b", "[2 us, 1 us, 1 us]", "[2 us, 1 us, 1 us]", "0 ns", 3, 4, 26000, 3},
        {"1f1b", "[1 us, 1 us, 2 us]", "[1 us, 1 us, 2 us]", "0 ns", 3, 4, 30000, 3},
        {"gpipe", "[2 us, 1 us, 1 us]", "[2 us, 1 us, 1 us]", "0 ns", 3, 4, 30000, 4},
        {"gpipe", "[1 us, 1 us, 2 us]", "[1 us, 1 us, 2 us]", "0 ns", 3, 4, 30000, 4},
    };
    for (const Golden& row : rows) {
        const std::string text = fmt::format(
            "workload: {{model: uniform, stages: {0}, forward: {1}, backward_input: {2}, backward_weight: {2}}}\n"
            "cluster: {{devices: {0}, link: {{latency: {3}, bandwidth: inf}}}}\n"
            "pipeline: {{schedule: {4}, micro_batches: {5}}}\n",
            row.devices, row.forward, row.backward, row.latency, row.schedule, row.micro_batches);
        write("golden.yaml", text);
        const Json json = run_well("simulate golden.yaml --json").json();
        EXPECT_EQ(json["makespan_ns"], row.makespan_ns) << text;
        EXPECT_EQ(json["devices"][0]["peak_in_flight"], row.first_peak) << text;
    }
    const Json asynchronous = run_well("simulate uniform.yaml --set pipeline.schedule=pipedream --json").json();
    for (int device = 0; device < 4; ++device)
        EXPECT_EQ(asynchronous["devices"][device]["weight_versions"], 4 - device);
}

TEST_F(Cli, SimulateIsDeterministic) {
    const std::string once = run_well("simulate mlp.yaml --json --trace one.json").out;
    EXPECT_EQ(run_well("simulate mlp.yaml --json --trace two.json").out, once);
    EXPECT_EQ(read("one.json"), read("two.json"));
}

TEST_F(Cli, NotesAboutCostsStayOffStdout) {
    const Said said = run_well("simulate mlp.yaml");
    EXPECT_TRUE(contains(said.err, "analytic costs: run `pipewright profile` to calibrate"));
    const std::string of_kinds = "simulate mlp.yaml --set training.precision=bf16 --set cluster.device=";
    EXPECT_TRUE(contains(run_well(of_kinds + "mi300x").err,
                         "analytic costs at 668.4 TFLOP/s, the fastest measured product of mi300x in bf16"));
    EXPECT_TRUE(contains(run_well(of_kinds + "gb300").err,
                         "at 2111 TFLOP/s, the fastest measured product of gb300 in bf16, and of "
                         "linear layers by 432 products measured on b200; run"));
    EXPECT_TRUE(contains(error_of("run mlp.yaml --set training.precision=bf16 --set cluster.device=mi300x", 2),
                         "devices of cpu compute in fp32, not in bf16"));
    EXPECT_FALSE(contains(said.out, "analytic"));
    EXPECT_TRUE(contains(said.out, "step time"));
    EXPECT_EQ(run_well("simulate uniform.yaml").err, "");
}

TEST_F(Cli, AMemoryLimitIsReportedBySimulateAndRefusedByTheOthers) {
    const std::string limit = " --set 'cluster.memory=1 kB'";
    const Said json = run_well("simulate mlp.yaml --json" + limit);
    EXPECT_EQ(json.json()["fits"], false);
    EXPECT_TRUE(contains(run_well("simulate mlp.yaml" + limit).out, "does not fit: device 0 needs "));
    const std::string refused = error_of("run mlp.yaml" + limit, 3);
    EXPECT_TRUE(contains(refused, "device 0")) << refused;
    EXPECT_TRUE(contains(refused, "(1000 bytes)")) << refused;
    const Said invalid = run("validate mlp.yaml" + limit);
    EXPECT_EQ(invalid.code, 3);
    EXPECT_TRUE(contains(invalid.out, "does not fit: device 1 needs ")) << invalid.out;
}

TEST_F(Cli, ConfigsAreValidated) {
    const std::string text = run_well("validate mlp.yaml").out;
    EXPECT_TRUE(contains(text, "ok: config")) << text;
    EXPECT_TRUE(contains(text, "ok: plan")) << text;
    EXPECT_TRUE(contains(text, "ok: memory of device 1")) << text;
    const Json json = run_well("validate mlp.yaml --json").json();
    EXPECT_EQ(json["ok"], true);
    EXPECT_EQ(json["kind"], "config");
}

TEST_F(Cli, ListsNameAllChoices) {
    EXPECT_TRUE(contains(run_well("list models").out, "resnet50"));
    EXPECT_TRUE(contains(run_well("list transformers").out, "\nmixtral-8x7b      46.703 G    12.880 G    4096"));
    EXPECT_TRUE(contains(run_well("list schedules").out, "1f1b"));
    EXPECT_TRUE(contains(run_well("list backends").out, "reference"));
    EXPECT_TRUE(contains(run_well("list transports").out, "threads"));
    EXPECT_TRUE(contains(run_well("list operations").out, "\nW        compute  backward (weights)\n"));
    EXPECT_TRUE(contains(run_well("list devices").out, "\nh100-sxm-80         989 TFLOP/s"));
    EXPECT_TRUE(contains(run_well("list keys").out, "training.momentum"));
    EXPECT_TRUE(contains(run_well("list schema").out, "json-schema.org"));
}

TEST_F(Cli, ModelsFromFilesArePredictedAndEmulated) {
    write("net.graph.txt",
          "node1 -- a -- forward_compute_time=4, backward_compute_time=8, activation_size=64, parameter_size=64\n"
          "node2 -- b -- forward_compute_time=4, backward_compute_time=8, activation_size=64, parameter_size=64\n"
          "\tnode1 -- node2\n");
    write("net.yaml", "layers: [{name: a, forward: 4 ms, backward: 8 ms}, {name: b, forward: 4 ms, backward: 8 ms}]");
    for (const std::string model : {"net.graph.txt", "net.yaml"}) {
        write("cfg.yaml",
              fmt::format("{{workload: {{model: {}}}, cluster: {{devices: 2}}, pipeline: {{schedule: gpipe, "
                          "micro_batches: 4}}, training: {{steps: 2}}, search: {{profile_batch: 4}}}}",
                          model));
        const Json predicted = run_well("simulate cfg.yaml --json").json();
        EXPECT_EQ(predicted["makespan_ns"], (4 + 2 - 1) * 3'000'000);
        EXPECT_EQ(predicted["costs"], "file");
        EXPECT_TRUE(contains(run_well("simulate cfg.yaml").out, model == "net.yaml" ? "stages from a | b" : "node2"));
        for (const char* command : {"run cfg.yaml", "compare cfg.yaml", "profile cfg.yaml -o p.yaml"})
            EXPECT_TRUE(contains(error_of(command, 2), "emulated")) << command;
        run_well("run cfg.yaml --set run.backend=emulated");
    }
    EXPECT_TRUE(contains(error_of("simulate cfg.yaml --set workload.model=op.json", 2), "only `search` takes"));
    write("bad.graph.txt", "node1 -- a -- forward_compute_time=x\n");
    EXPECT_TRUE(contains(error_of("simulate cfg.yaml --set workload.model=bad.graph.txt", 2), "bad.graph.txt:1:36"));
}

}  // namespace pw
