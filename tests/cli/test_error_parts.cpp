// What compare tells of an error beside its size.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"
#include "workloads/units.h"

#include <fmt/format.h>

namespace pw {
namespace {

constexpr const char* kTwoDevices = R"(
workload: {model: uniform, stages: 2, forward: [1 ms, 2 ms], backward_input: 2 ms, backward_weight: 1 ms, output: 1 MB}
cluster: {devices: 2, link: {latency: 10 us, bandwidth: 1 GB/s}}
pipeline: {schedule: 1f1b, micro_batches: 4}
training: {steps: 2}
run: {backend: emulated}
)";

class ErrorPartsOfCompare : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        write("cfg.yaml", kTwoDevices);
        run_well("simulate cfg.yaml --trace predicted.json");
        run_well("simulate cfg.yaml --set 'workload.forward=[1 ms, 3 ms]' --trace slower.json");
    }
    static void expect_sum(const Json& json) {
        const Json& parts = json["error_parts"];
        Ns by_task = 0, mechanics = 0;
        for (const Json& task : parts["by_task"])
            by_task += task["ns"].get<Ns>();
        for (const auto& [cause, time] : parts["mechanics"].items())
            mechanics += time.get<Ns>();
        EXPECT_EQ(by_task, parts["costs_ns"]);
        EXPECT_EQ(mechanics, parts["mechanics_ns"]);
        EXPECT_TRUE(parts["drift_ns"].is_null());
        EXPECT_EQ(mechanics + parts["jitter_ns"].get<Ns>() + by_task,
                  json["predicted"]["step_time_ns"].get<Ns>() - json["measured"]["step_time_ns"].get<Ns>());
        EXPECT_DOUBLE_EQ(json["mechanics_error"],
                         static_cast<double>(mechanics) / json["measured"]["step_time_ns"].get<double>());
    }
};

TEST_F(ErrorPartsOfCompare, AddUpInRuns) {
    expect_sum(run_well("compare cfg.yaml --json").json());
    expect_sum(run_well("compare cfg.yaml --json --set pipeline.schedule=pipedream").json());
    run_well("profile mlp.yaml -o profile.yaml");
    for (const char* set : {"", " --set 'pipeline.replicas=[2]' --set training.clip_norm=1",
                            " --set run.transport=link --set 'cluster.link={bandwidth: 1 GB/s, latency: 10 us}'",
                            " --set transfer.receive=deferred"})
        expect_sum(run_well(fmt::format("compare mlp.yaml --json --set cluster.profile=profile.yaml{}", set)).json());
}

TEST_F(ErrorPartsOfCompare, NameTheSlowerStage) {
    const Json json = run_well("compare predicted.json slower.json --json").json();
    expect_sum(json);
    const Json& parts = json["error_parts"];
    EXPECT_EQ(parts["mechanics_ns"], 0);
    EXPECT_EQ(parts["jitter_ns"], 0);
    EXPECT_EQ(parts["by_task"][0], Json::parse(R"({"op": "F", "stage": 1, "ns": -3000000,
                                                   "predicted_task_ns": 2000000, "measured_task_ns": 3000000})"));
    const Said said = run_well("compare predicted.json slower.json --why --plot both.html");
    for (const char* row : {"part of the error", "mechanics", "jitter", "costs", "F of stage 1", "in costs"}) {
        EXPECT_TRUE(contains(said.out, row)) << row << said.out;
        EXPECT_TRUE(contains(read("both.html"), row)) << row;
    }
    EXPECT_TRUE(contains(said.out, "F of stage 1 is costed 2.000 ms and takes 3.000 ms in the mean")) << said.out;
    EXPECT_TRUE(contains(said.out, "Profile stage 1 again")) << said.out;
    EXPECT_TRUE(contains(run_well("compare predicted.json predicted.json --why").out, "is the measured step"));
}

TEST_F(ErrorPartsOfCompare, AreKeptWithTheScheduleThatTheyAreOf) {
    run_well("compare cfg.yaml --schedules gpipe,1f1b -o study");
    for (const Json& point : Json::parse(read("study/accuracy.json"))["points"])
        expect_sum(point);
    EXPECT_EQ(run_well("validate study --json").json()["points"].size(), 2u);
}

TEST_F(ErrorPartsOfCompare, ATraceAloneIsReplayed) {
    const Json json = run_well("compare slower.json --replay --json").json();
    EXPECT_EQ(json["mechanics_ns"], 0);
    EXPECT_EQ(json["replayed_ns"], json["step_time_ns"]);
    EXPECT_TRUE(contains(run_well("compare slower.json --replay").out, "replayed with its own task times"));
    run_well("run cfg.yaml --trace run.json");
    const Json run = run_well("compare run.json --replay --json").json();
    EXPECT_EQ(run["mechanics_ns"], run["replayed_ns"].get<Ns>() - run["step_time_ns"].get<Ns>());

    // The same without all that others do not know.
    Json file = Json::parse(read("run.json"));
    file.erase("otherData");
    for (Json& event : file["traceEvents"])
        if (event["ph"] == "X")
            for (const char* key : {"device", "rank", "slice", "bytes", "version"})
                event["args"].erase(key);
    write("foreign.json", file.dump());
    EXPECT_EQ(run_well("compare foreign.json --replay --json").json()["mechanics"], run["mechanics"]);
    EXPECT_EQ(run_well("compare foreign.json --replay --json").json()["schedule"], "foreign");
}

TEST_F(ErrorPartsOfCompare, WhatCannotBeReplayedIsNamed) {
    EXPECT_TRUE(contains(error_of("compare cfg.yaml --replay", 2), "is a config, not a trace"));
    EXPECT_TRUE(contains(error_of("compare slower.json predicted.json --replay", 2), "--replay takes one trace"));
    EXPECT_TRUE(contains(error_of("compare slower.json --replay --why", 2), "--replay takes one trace"));
    Json file = Json::parse(read("slower.json"));
    Json& events = file["traceEvents"];
    // A list in which 1B0 stands before 1F0, with the same times.
    const auto at = [&](const char* name, int device) -> Json& {
        for (Json& event : events)
            if (event["ph"] == "X" && event["name"] == name && event["pid"] == device)
                return event;
        throw std::out_of_range(name);
    };
    std::swap(at("F0", 1), at("B0", 1));
    write("wrong.json", file.dump());
    const std::string error = error_of("compare wrong.json --replay", 2);
    EXPECT_TRUE(contains(error, "1B0 needs 1F0, which no device runs before it")) << error;
    const Said said = run_well("compare predicted.json wrong.json --json");  // numbers need no lists
    EXPECT_TRUE(contains(said.err, "note: what the difference comes from is not known: ")) << said.err;
    EXPECT_TRUE(said.json()["error_parts"].is_null());
}

}  // namespace
}  // namespace pw
