#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

#include <cmath>

namespace pw {

namespace {

constexpr const char* kResultKeys[] = {"schema_version", "makespan_ns",      "span_ns",       "step_time_ns",
                                       "ideal_ns",       "bubble_rate",      "bubble_ratio",  "tasks",
                                       "plan_hash",      "span_bubble_rate", "fits",          "samples_per_second",
                                       "schedule",       "stages",           "micro_batches", "devices"};
constexpr const char* kDeviceKeys[] = {"busy_ns",
                                       "idle_ns",
                                       "peak_in_flight",
                                       "exposed_communication_ns",
                                       "memory",
                                       "peak_in_flight_until_weight",
                                       "weight_versions",
                                       "peak_memory_bytes",
                                       "reserved_memory_bytes"};
constexpr const char* kMemoryKeys[] = {"weights",     "stashed_weights", "gradients", "optimizer",
                                       "activations", "inputs",          "workspace", "communication"};

void expect_results(const Json& json, std::size_t devices) {
    for (const char* key : kResultKeys)
        EXPECT_TRUE(json.contains(key)) << key;
    for (const auto& [key, value] : json.items())
        if (key.ends_with("_ns")) {
            EXPECT_TRUE(value.is_number_integer()) << key;
        }
    ASSERT_EQ(json["devices"].size(), devices);
    for (const Json& device : json["devices"]) {
        for (const char* key : kDeviceKeys)
            EXPECT_TRUE(device.contains(key)) << key;
        Json sum = 0;
        for (const char* key : kMemoryKeys)
            sum = sum.get<std::int64_t>() + device["memory"].at(key).get<std::int64_t>();
        EXPECT_EQ(device["peak_memory_bytes"], sum);
    }
}

}  // namespace

TEST_F(Cli, HelpAndVersionAreResults) {
    EXPECT_TRUE(contains(run_well("--help").out, "simulate"));
    EXPECT_TRUE(contains(run_well("simulate -h").out, "--trace"));
    EXPECT_TRUE(run_well("--version").out.starts_with("pipewright 0.1.0"));
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
    EXPECT_TRUE(contains(error_of("list colours", 2),
                         "list models, schedules, backends, transports, operations, devices, keys or schema"));
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
                         "at 2.5 PFLOP/s, the vendor's peak of gb300 in bf16, and of "
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

TEST_F(Cli, PlansArePrintedExportedAndValidated) {
    EXPECT_TRUE(contains(run_well("plan uniform.yaml").out, "0F0"));
    const Said csv = run_well("plan uniform.yaml --format csv");
    EXPECT_TRUE(csv.out.starts_with("0F0,0F1,")) << csv.out;
    EXPECT_TRUE(contains(csv.err, "no cells for U"));
    EXPECT_TRUE(contains(run_well("plan uniform.yaml --format csv-comms").out, "1RECV_F0"));
    EXPECT_EQ(run_well("plan uniform.yaml -o plan.csv").out, "");
    EXPECT_EQ(read("plan.csv"), csv.out);
    EXPECT_TRUE(run_well("validate plan.csv").out.starts_with("ok: plan "));
    write("broken.csv", "0F0,0B0\n1F0,1Q0\n");
    EXPECT_TRUE(contains(error_of("validate broken.csv", 2), "broken.csv:2, cell 2"));
    write("stuck.csv", "0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n");
    const Said stuck = run("validate stuck.csv");
    EXPECT_EQ(stuck.code, 3);
    EXPECT_TRUE(contains(stuck.err, "deadlocks (in all lanes, under all protocols)")) << stuck.err;
    EXPECT_NE(run_well("plan uniform.yaml --versions").out, "");
}

constexpr const char* kAnyShape = R"(
workload: {model: uniform, forward: 1 us, backward_input: 1 us, backward_weight: 1 us}
cluster: {devices: 2}
pipeline: {micro_batches: 4}
)";

TEST_F(Cli, SchedulesDetermineTheNumberOfStages) {
    write("any.yaml", kAnyShape);
    for (const auto& [schedule, stages] :
         {std::pair{"1F1B", 2}, {"ZBVZeroBubble", 4}, {"interleaved", 4}, {"naive", 2}}) {
        const Json json = run_well(fmt::format("simulate any.yaml --json --set pipeline.schedule={}", schedule)).json();
        EXPECT_EQ(json["stages"], stages) << schedule;
    }
    EXPECT_EQ(run_well("simulate any.yaml --json --set pipeline.schedule=zbv").json()["schedule"], "zb-v");
    EXPECT_TRUE(contains(error_of("simulate any.yaml --set pipeline.schedule=zb-v --set pipeline.stages=6", 2),
                         "set pipeline.stages to 4"));
    EXPECT_TRUE(contains(error_of("simulate any.yaml --set pipeline.schedule=zb-h1 --set pipeline.weights=latest", 2),
                         "leave pipeline.weights out, or set it to flush"));
}

TEST_F(Cli, APlanInAFileIsASchedule) {
    write("any.yaml", kAnyShape);
    write("file.yaml", "workload: {model: uniform}\npipeline: {schedule: plan.csv}\n");
    for (const char* schedule : {"interleaved", "zb-v", "gpipe", "forward-only"})
        for (const char* format : {"csv", "csv-comms"}) {
            const std::string set = fmt::format(" --set pipeline.schedule={}", schedule);
            const std::string csv = run_well(fmt::format("plan any.yaml --format {} -o plan.csv", format) + set).out;
            const Json wanted = run_well("simulate any.yaml --json" + set).json();
            const Json json = run_well("simulate file.yaml --json").json();
            EXPECT_EQ(json["makespan_ns"], wanted["makespan_ns"]) << schedule << ' ' << format;
            EXPECT_EQ(json["stages"], wanted["stages"]);
            EXPECT_EQ(json["micro_batches"], 4);
            EXPECT_EQ(json["devices"].size(), 2u);
            EXPECT_EQ(run_well(fmt::format("plan file.yaml --format {}", format)).out, read("plan.csv"));
        }
    const std::string error = error_of("simulate file.yaml --set pipeline.micro_batches=5", 2);
    EXPECT_TRUE(contains(error, "'pipeline.micro_batches' is 5, but the plan has 4")) << error;
    EXPECT_TRUE(contains(error_of("simulate file.yaml --set cluster.devices=3", 2), "but the plan has 2"));
    EXPECT_TRUE(contains(error_of("simulate file.yaml --set workload.stages=3", 2), "the plan has"));
    EXPECT_TRUE(contains(error_of("simulate file.yaml --set pipeline.schedule=no.csv", 2), "no.csv': No such file"));
    EXPECT_TRUE(contains(error_of("simulate file.yaml --set pipeline.weights=stash", 2), "one flushed mini-batch"));
}

TEST_F(Cli, ReplicasArePlannedSimulatedAndRun) {
    const std::string replicas = "uniform.yaml --set cluster.devices=6 --set pipeline.replicas=[1,3,1,1]";
    EXPECT_NE(run_well("plan " + replicas).out.find("\n2: 1RECV_F1<0 1F1 "), std::string::npos);
    const Json result = run_well("simulate " + replicas + " --json").json();
    EXPECT_EQ(result["devices"].size(), 6u);
    EXPECT_EQ(result["stages"], 4);
    EXPECT_EQ(result["devices"][1]["busy_ns"], 3 * 3000);  // micro-batches 0, 3 and 6
    EXPECT_EQ(result["devices"][3]["busy_ns"], 2 * 3000);
    run_well("plan " + replicas + " --format csv-comms -o plan.csv");
    const Json read =
        run_well("simulate uniform.yaml --set cluster.devices=6 --set pipeline.schedule=plan.csv --json").json();
    EXPECT_EQ(read["makespan_ns"], result["makespan_ns"]);
    const std::string run = "run " + replicas + " --set run.backend=emulated --steps 2 --json";
    EXPECT_EQ(run_well(run).json()["weights_hash"], run_well(run + " --reference").json()["weights_hash"]);
    EXPECT_GT(run_well("simulate mlp.yaml --set transfer.sums=tree --json").json()["step_time_ns"], 0);
    const std::string refused = error_of("run mlp.yaml --set transfer.sums=tree", 2);
    for (const char* part : {"not by tree", "help: simulate it", "or write sums: ring"})
        EXPECT_TRUE(contains(refused, part)) << refused;
    const std::string buckets = " --set transfer.sum_bucket='25 MiB'";
    EXPECT_GT(run_well("simulate mlp.yaml --json" + buckets).json()["step_time_ns"], 0);
    for (const char* key : {"transfer.sum_bucket=1KiB", "training.shard_optimizer=true"}) {
        const std::string on_cuda = error_of(fmt::format("run mlp.yaml --set run.backend=cuda --set {}", key), 2);
        for (const std::string& part : {std::string("devices of cuda"), std::string(key)})
            EXPECT_TRUE(contains(on_cuda, part)) << on_cuda;
    }
    const char* larger = "note: transfer.sum_bucket: a stage has at most 4096 buckets; those of stage ";
    const std::string on_four = "simulate mlp.yaml --set cluster.devices=4 --set pipeline.replicas=[2,2]";
    EXPECT_FALSE(contains(run_well(on_four + buckets).err, larger));
    const std::string run_on_four = "run mlp.yaml --json --set cluster.devices=4 --set pipeline.replicas=[2,2]";
    EXPECT_EQ(run_well(run_on_four + " --set transfer.sum_bucket='1 KiB'").json()["weights_hash"],
              run_well(run_on_four).json()["weights_hash"]);
    const std::string said = run_well(on_four + " --set transfer.sum_bucket=2B").err;
    EXPECT_TRUE(contains(said, larger) && contains(said, "instead of 2 B")) << said;
}

// REDUCE_GRAD of a stage on one device changes only the plan.
TEST_F(Cli, AFileWithGradientSumsRuns) {
    const auto hash_of = [&](const char* sum) {
        write("plan.csv", fmt::format("0F0,0F1,0B0,0B1{0}\n1F0,1F1,1B0,1B1{1}\n", *sum ? ",0REDUCE_GRAD" : "",
                                      *sum ? ",1REDUCE_GRAD" : ""));
        return run_well("run mlp.yaml --json --set pipeline.micro_batches=2 --set pipeline.schedule=plan.csv")
            .json()["weights_hash"];
    };
    EXPECT_EQ(hash_of("with"), hash_of(""));
}

// The norm is that of the sums, so U follows them.
TEST_F(Cli, AFileWithReplicasIsClipped) {
    write("plan.csv", "0F0,0B0\n0F1,0B1\n");
    const std::string clipped = "run mlp.yaml --json --set training.clip_norm=0.1 --set pipeline.micro_batches=2 ";
    EXPECT_EQ(run_well(clipped + "--set pipeline.schedule=plan.csv").json()["weights_hash"],
              run_well(clipped + "--set pipeline.stages=1 --set pipeline.replicas=[2]").json()["weights_hash"]);
}

// A gradient's receive before the first forward: fine with a lane for each kind of traffic, a deadlock with one lane
// for all.
TEST_F(Cli, ADeadlockOfAnImportedOrderNamesItsCells) {
    write("file.yaml", "workload: {model: uniform}\npipeline: {schedule: early.csv}\n");
    write("early.csv",
          "0RECV_B0,0F0,0SEND_F0,0F1,0SEND_F1,0B0,0RECV_B1,0B1\n"
          "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n");
    run_well("simulate file.yaml");
    const std::string error = error_of("simulate file.yaml --set transfer.communicator=one", 3);
    EXPECT_TRUE(contains(error, "early.csv:1, cell 1: 0RECV_B0<1")) << error;
    const Said said = run_well("validate early.csv");
    EXPECT_TRUE(said.out.starts_with("ok: plan ")) << said.out;
    EXPECT_TRUE(contains(said.out, "one        early     deadlock")) << said.out;
    EXPECT_EQ(run_well("validate early.csv --json").json()["modes"].size(), 6u);
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

TEST_F(Cli, TracesAreComparedPlottedAndValidated) {
    run_well("simulate uniform.yaml --trace a.json");
    const Json same = run_well("compare a.json a.json --json --max-error 0.1%").json();
    EXPECT_EQ(same["step_time_error"], 0);
    EXPECT_EQ(same["peak_memory_error"], 0);
    EXPECT_EQ(same["task_time_error_median"], 0);
    expect_results(same["predicted"], 4);
    expect_results(same["measured"], 4);
    EXPECT_EQ(run_well("plot a.json a.json -o a.html").out, "a.html\n");
    EXPECT_TRUE(contains(read("a.html"), "predicted, gpipe: step "));
    run_well("plot a.json -o a.txt --step 0");
    EXPECT_TRUE(contains(error_of("plot a.json -o a.txt --step 7", 2), "has no step 7"));
    EXPECT_TRUE(contains(run_well("validate a.json").out, "ok: trace"));
    EXPECT_EQ(run_well("validate a.json --json").json()["kind"], "trace");
    error_of("plot a.json -o a.doc", 2);
}

TEST_F(Cli, ALargeErrorFailsTheCheckAfterTheReport) {
    run_well("simulate uniform.yaml --trace a.json");
    run_well("simulate uniform.yaml --set 'workload.forward=2 us' --trace b.json");
    const Said said = run("compare a.json b.json --json --max-error 5%");
    EXPECT_EQ(said.code, 4);
    EXPECT_NEAR(said.json()["step_time_error"].get<double>(), -0.25, 1e-12);
    EXPECT_TRUE(contains(said.err, "error: step time error -25.0 % exceeds --max-error 5.0 %")) << said.err;
    EXPECT_EQ(run("compare a.json b.json --max-error 30%").code, 0);
    EXPECT_TRUE(contains(error_of("compare a.json b.json --max-error 5", 2), "5%"));
    run_well("simulate uniform.yaml --set pipeline.schedule=1f1b --trace c.json");
    EXPECT_TRUE(contains(error_of("compare a.json c.json", 2), "different plans"));
}

TEST_F(Cli, AccuracyTablesAreSummed) {
    write("accuracy.json", R"({"points": [
        {"name": "a", "step_time_error": -0.04, "peak_memory_error": 0.01},
        {"name": "b", "step_time_error": 0.02, "peak_memory_error": -0.03},
        {"name": "c", "step_time_error": 0.01, "peak_memory_error": 0}]})");
    write("other.json", R"({"unrelated": 1})");
    const Json json = run_well("validate . --json").json();
    EXPECT_EQ(json["points"].size(), 3u);
    EXPECT_DOUBLE_EQ(json["step_time_error_median_abs"], 0.02);
    EXPECT_DOUBLE_EQ(json["step_time_error_p95_abs"], 0.04);
    EXPECT_NEAR(json["step_time_error_bias"].get<double>(), -0.01 / 3, 1e-12);
    EXPECT_DOUBLE_EQ(json["peak_memory_error_max_abs"], 0.03);
    EXPECT_TRUE(contains(run_well("validate .").out, "3 points"));
    write("accuracy.json", R"({"points": [{"step_time_error": 0.1}]})");
    EXPECT_TRUE(contains(error_of("validate .", 2), "point 0 has no number 'peak_memory_error'"));
}

TEST_F(Cli, RunsGiveTheNumbersOfTheReference) {
    const Json json = run_well("run mlp.yaml --json --trace run.json").json();
    expect_results(json, 2);
    EXPECT_EQ(json["losses"].size(), 3u);
    EXPECT_EQ(json["gradient_norms"].size(), 3u);
    EXPECT_EQ(json["weights_hash"].get<std::string>().size(), 16u);
    const Json reference = run_well("run mlp.yaml --json --reference").json();
    EXPECT_EQ(reference["losses"], json["losses"]);
    EXPECT_EQ(reference["weights_hash"], json["weights_hash"]);
    EXPECT_EQ(run_well("run mlp.yaml --json --steps 1").json()["losses"].size(), 1u);
    run_well("simulate mlp.yaml --trace simulated.json");
    EXPECT_EQ(run_well("compare simulated.json run.json --json").json()["plan_hash"], json["plan_hash"]);
    EXPECT_TRUE(contains(error_of("run uniform.yaml", 2), "no layers"));
}

TEST_F(Cli, CompareMeasuresItsProfile) {
    const Said said = run_well("compare mlp.yaml --json");
    EXPECT_TRUE(contains(said.err, "no cluster.profile: measuring one first"));
    const Json json = said.json();
    for (const char* key : {"step_time_error", "peak_memory_error", "task_time_error_median"})
        EXPECT_TRUE(json.contains(key)) << key;
    expect_results(json["predicted"], 2);
    expect_results(json["measured"], 2);
    EXPECT_EQ(json["measured"]["losses"].size(), 3u);
    for (const char* key : {"calibrated", "drift", "slices", "reference"})
        EXPECT_TRUE(json.contains(key)) << key;
    EXPECT_EQ(json["calibrated"]["step_time_error"], json["step_time_error"]);  // there is no other prediction
    EXPECT_GT(json["calibrated"]["tasks"].size(), 0u);
    EXPECT_FALSE(run_well("compare mlp.yaml --json --interleave 0").json().contains("calibrated"));
    EXPECT_EQ(run("compare mlp.yaml --max-error 0.000001%").code, 4);
}

TEST_F(Cli, CompareReportsAMissingLink) {
    const std::string link = "compare mlp.yaml --json --set 'cluster.link={bandwidth: 1 GB/s}'";
    const std::string note = "note: cluster.link is predicted, but devices hand over as this machine does";
    EXPECT_TRUE(contains(run_well(link).err, note));
    EXPECT_FALSE(contains(run_well(link + " --set run.transport=link").err, note));
}

TEST_F(Cli, ComparesSchedulesWithoutGnuplot) {
    const std::string path = std::getenv("PATH");
    setenv("PATH", file("nowhere").c_str(), 1);
    const Said said = run_well("compare mlp.yaml --schedules naive,pipedream -o study");
    setenv("PATH", path.c_str(), 1);
    EXPECT_TRUE(contains(said.err, "gnuplot not found")) << said.err;
    for (const char* kept : {"table.txt", "profile.yaml", "losses.html", "naive.html", "pipedream.html"})
        EXPECT_TRUE(std::filesystem::exists(file("study") / kept)) << kept;
    run_well("compare study/pipedream.predicted.json study/pipedream.measured.json --plot later.txt");
    EXPECT_EQ(run_well("validate study --json").json()["points"].size(), 2u);
}

TEST_F(Cli, ProfilesAreMeasuredAndUsed) {
    const Said said = run_well("profile mlp.yaml -o profile.yaml --sizes 1,2");
    EXPECT_TRUE(contains(said.out, "micro-batches of 1\n"));
    EXPECT_TRUE(contains(said.out, "micro-batches of 2\n"));
    const std::string with = " --set cluster.profile=profile.yaml";
    write("profile.yaml", of_a_quiet_machine(read("profile.yaml")));
    EXPECT_EQ(run_well("simulate mlp.yaml --json" + with).json()["costs"], "measured");
    EXPECT_EQ(run_well("simulate mlp.yaml" + with).err, "");
    const Said between = run_well("simulate mlp.yaml --json --set pipeline.micro_batch_size=3" + with);
    EXPECT_EQ(between.json()["interpolated"], true);
    EXPECT_TRUE(contains(between.err, "--sizes 3")) << between.err;
}

TEST_F(Cli, FullDisksAreFailures) {
    EXPECT_EQ(run("simulate uniform.yaml --trace /nowhere/trace.json").code, 1);
    const std::string full = "cd /tmp && '" PIPEWRIGHT_BINARY "' list schedules >/dev/full 2>/dev/null";
    EXPECT_EQ(WEXITSTATUS(std::system(full.c_str())), 1);
}

}  // namespace pw
