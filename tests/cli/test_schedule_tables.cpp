// Several schedules of one config in a table, tables as CSV, and devices in the JSON of tables.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <set>
#include <sstream>

namespace pw {

namespace {

class ScheduleTables : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("four.yaml", R"(
workload: {model: uniform, stages: 4, forward: 1 us, backward_input: 1 us, backward_weight: 1 us, activation: 1 MB}
cluster: {devices: 4, memory: 6 MB}
pipeline: {schedule: 1f1b, micro_batches: 8}
)");
    }

    std::vector<std::string> lines_in(const std::string& name) const {
        std::istringstream text(read(name));
        std::vector<std::string> lines;
        for (std::string line; std::getline(text, line);)
            lines.push_back(line);
        return lines;
    }
};

}  // namespace

// naive takes m p slots of 3 us, 1f1b and gpipe m + p - 1; gpipe holds 8 MB, and zb-v needs 8 stages.
TEST_F(ScheduleTables, RankThoseThatFitAndNameTheOthers) {
    const Json json = run_well("simulate four.yaml --schedules naive,zb-v,gpipe,1f1b --json").json();
    std::vector<std::string> order;
    for (const Json& point : json["points"])
        order.push_back(point["set"]["pipeline.schedule"]);
    EXPECT_EQ(order, (std::vector<std::string>{"1f1b", "naive", "gpipe", "zb-v"}));
    EXPECT_EQ(json["points"][0]["step_time_ns"], 33'000);
    EXPECT_EQ(json["points"][1]["step_time_ns"], 96'000);
    EXPECT_EQ(json["points"][2]["fits"], false);
    EXPECT_TRUE(contains(json["points"][3]["error"], "zb-v places two stages on each device"));
    EXPECT_EQ(json["best"], json["points"][0]);
    const std::string out = run_well("simulate four.yaml --schedules naive,zb-v,gpipe,1f1b").out;
    EXPECT_LT(out.find("\n1f1b "), out.find("\nnaive ")) << out;
    EXPECT_TRUE(contains(out, "\nleft out: zb-v: places two stages on each device")) << out;
    EXPECT_TRUE(contains(out, "\nbest: schedule 1f1b: ")) << out;
}

// Four stages on two devices: most schedules place one stage on each, and say so once.
TEST_F(ScheduleTables, HaveALineForEachReason) {
    const std::string out = run_well("simulate four.yaml --set cluster.devices=2 --schedules all").out;
    const std::string reason = ": places one stage on each device: 4 stages on 2 devices do not fit";
    ASSERT_TRUE(contains(out, reason)) << out;
    EXPECT_EQ(out.find(reason), out.rfind(reason)) << out;
    EXPECT_EQ(out.find(" - "), std::string::npos) << out;
}

TEST_F(ScheduleTables, AllAreThoseThatTrain) {
    const Json json = run_well("simulate four.yaml --schedules all --json").json();
    std::set<std::string> names;
    for (const Json& point : json["points"])
        names.insert(point["set"]["pipeline.schedule"]);
    EXPECT_TRUE(names.contains("zb-h2") && names.contains("pipedream-2bw") && names.contains("interleaved"));
    EXPECT_FALSE(names.contains("forward-only"));
    EXPECT_EQ(json["best"]["asynchronous"], false);
}

TEST_F(ScheduleTables, DrawAPanelOfEach) {
    const Said said = run_well("simulate four.yaml --schedules zb-v,gpipe,1f1b --plot all.txt");
    const std::string drawn = read("all.txt");
    EXPECT_TRUE(contains(drawn, "predicted, gpipe: ") && contains(drawn, "predicted, 1f1b: ")) << drawn;
    EXPECT_TRUE(contains(said.err, "note: the picture has no panel of zb-v: ")) << said.err;
}

TEST_F(ScheduleTables, AreAnAxisOfASweep) {
    const Json json =
        run_well("simulate four.yaml --schedules gpipe,1f1b --set 'sweep={pipeline.micro_batches: [4, 8]}' --json")
            .json();
    ASSERT_EQ(json["points"].size(), 4u);
    EXPECT_EQ(json["points"][3]["set"], (Json{{"pipeline.schedule", "1f1b"}, {"pipeline.micro_batches", 8}}));
    expect_says(error_of("simulate four.yaml --schedules gpipe,1f1b --explain", 2), {"about one plan", "--schedules"});
    expect_says(error_of("simulate four.yaml --schedules gpipe --set 'sweep={pipeline.schedule: [1f1b]}'", 2),
                {"both list schedules", "remove one"});
}

// Devices are those of the simulation of the point alone.
TEST_F(ScheduleTables, HaveTheDevicesOfEveryPoint) {
    const Json alone =
        run_well("simulate four.yaml --json --set workload.stages=8 --set pipeline.schedule=zb-v").json();
    EXPECT_EQ(alone["devices"][1]["device"], 1);
    EXPECT_EQ(alone["devices"][1]["name"], "1");
    EXPECT_EQ(alone["devices"][1]["stages"], (Json{1, 6}));
    const Json both = run_well("simulate four.yaml --json --set workload.stages=8 --schedules zb-v,interleaved").json();
    for (const Json& point : both["points"]) {
        ASSERT_EQ(point["devices"].size(), 4u);
        if (point["schedule"] == "zb-v") {
            EXPECT_EQ(point["devices"], alone["devices"]);
        }
    }
}

TEST_F(ScheduleTables, AreWrittenAsCsv) {
    run_well("simulate four.yaml --csv devices.csv");
    const std::vector<std::string> devices = lines_in("devices.csv");
    ASSERT_EQ(devices.size(), 5u);
    EXPECT_TRUE(devices[0].starts_with("device,name,stages,busy_ns,idle_ns,")) << devices[0];
    EXPECT_TRUE(devices[0].ends_with("\r"));
    EXPECT_TRUE(devices[2].starts_with("1,1,1,24000,9000,")) << devices[2];
    const Said said = run_well("simulate four.yaml --schedules zb-v,1f1b --csv -");
    EXPECT_TRUE(said.out.starts_with("set.pipeline.schedule,")) << said.out;
    EXPECT_TRUE(contains(said.out, "\r\n1f1b,")) << said.out;
    EXPECT_TRUE(contains(said.out, "\r\nzb-v,")) << said.out;
    write("layers.yaml",
          "samples: 1\nlayers: [{name: a, forward: 1 us, backward: 2 us}, {name: b, forward: 1 us, "
          "backward: 2 us}]\n");
    write("search.yaml", "workload: {model: layers.yaml}\ncluster: {devices: 2}\npipeline: {micro_batches: 4}\n");
    run_well("search search.yaml --csv plans.csv");
    EXPECT_TRUE(contains(lines_in("plans.csv")[0], "plan,schedule,asynchronous,stages,devices,")) << read("plans.csv");
    EXPECT_EQ(lines_in("plans.csv").size(), 1 + run_well("search search.yaml --json").json()["plans"].size());
}

// gpipe fits, zb-v is not defined for two stages on two devices; a name that is none is refused.
TEST_F(ScheduleTables, OfRunsLeaveOutThoseThatAreNotDefined) {
    const std::string two = " --set run.backend=emulated --set pipeline.stages=2 --csv runs.csv";
    const Said said = run_well("compare mlp.yaml --schedules zb-v,gpipe" + two);
    EXPECT_TRUE(contains(said.out, "\ngpipe ")) << said.out;
    EXPECT_TRUE(contains(said.out, "\nzb-v left out: ")) << said.out;
    ASSERT_EQ(lines_in("runs.csv").size(), 2u);
    EXPECT_TRUE(contains(lines_in("runs.csv")[0], ",step_time_error,")) << read("runs.csv");
    EXPECT_TRUE(contains(lines_in("runs.csv")[0], ",predicted.step_time_ns,")) << read("runs.csv");
    const Json json = run_well("compare mlp.yaml --schedules zb-v,gpipe --json" + two).json();
    ASSERT_EQ(json["points"].size(), 1u);
    EXPECT_EQ(json["points"][0]["name"], "gpipe");
    EXPECT_EQ(json["left_out"][0]["schedule"], "zb-v");
    expect_says(error_of("compare mlp.yaml --schedules zb-v" + two, 2), {"zb-v places two stages"});
    expect_says(error_of("compare mlp.yaml --schedules gpipe,zb-x" + two, 2), {"no schedule 'zb-x'"});
}

}  // namespace pw
