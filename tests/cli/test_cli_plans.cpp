// Plans on the command line: printed, exported, read from files, with replicas, refused.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

namespace pw {

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

}  // namespace pw
