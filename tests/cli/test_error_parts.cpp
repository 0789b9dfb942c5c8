// The parts of an error that compare reports in addition to its size.
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
    for (const char* row : {"part of the error", "mechanics", "jitter", "costs", "F of stage 1", "not known"}) {
        EXPECT_TRUE(contains(said.out, row)) << row << said.out;
        EXPECT_TRUE(contains(read("both.html"), row)) << row;
    }
    EXPECT_TRUE(contains(said.out, "F of stage 1 has a cost of 2.000 ms and takes 3.000 ms on average")) << said.out;
    EXPECT_TRUE(contains(said.out, "Profile stage 1 again")) << said.out;
    EXPECT_TRUE(
        contains(run_well("compare predicted.json predicted.json --why").out, "Predicted and measured step are equal"));
}

TEST_F(ErrorPartsOfCompare, AreStoredWithTheirSchedule) {
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

    // The same trace without everything that other programs do not have.
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

// A prediction equals the replay of its own trace: rules of replicas, shared parameters and lanes included.
TEST_F(ErrorPartsOfCompare, NothingIsMissingInThePredictedTrace) {
    write("gpt.yaml", R"(
workload: {model: gpt, sequence_length: 8, vocabulary: 512, embedding: 64, blocks: 2, heads: 2}
cluster: {devices: 4, link: {latency: 10 us, bandwidth: 1 GB/s}}
pipeline: {schedule: gpipe, micro_batches: 4, split: [h.0], replicas: [2, 2]}
)");
    write("stages.yaml", R"(
workload: {model: uniform, stages: 4, forward: 8 us, backward_input: 9 us, backward_weight: 17 us, output: 1 kB}
cluster: {devices: 4, link: {latency: 5 us, bandwidth: 1 GB/s}}
pipeline: {schedule: zb-h2, micro_batches: 4}
)");
    write("layers.yaml",
          "samples: 1\nlayers:\n  - {name: a, forward: 10 us, backward: 21 us, output: 9 kB}\n"
          "  - {name: b, forward: 12 us, backward: 20 us}\n");
    write("file.yaml",
          "{workload: {model: layers.yaml}, cluster: {devices: 2, link: {bandwidth: 1 GB/s}}, "
          "pipeline: {schedule: 1f1b, micro_batches: 6}}");
    for (const std::string config :
         {"gpt.yaml", "gpt.yaml --set pipeline.replicas=[1,3]", "gpt.yaml --set pipeline.replicas=[3,1]",
          "gpt.yaml --set pipeline.schedule=1f1b --set training.clip_norm=1", "stages.yaml", "file.yaml",
          "gpt.yaml --set pipeline.replicas=[1,1] --set cluster.devices=2", "file.yaml --set run.backend=emulated"})
        for (const char* mode :
             {"{}", "{receive: deferred}", "{receive: deferred, communicator: one}",
              "{protocol: rendezvous, eager_limit: 2 kB, communicator: direction}", "{exchange: blocking}"}) {
            run_well(fmt::format("simulate {} --set 'transfer={}' --trace t.json", config, mode));
            const Json json = run_well("compare t.json --replay --json").json();
            EXPECT_EQ(json["mechanics_ns"], 0) << config << ' ' << mode << json["mechanics"];
        }
}

// Models that can only be emulated have one rule.
TEST_F(ErrorPartsOfCompare, AModelFromAFileIsPredictedAsItIsEmulated) {
    write("layers.yaml",
          "samples: 1\nlayers:\n  - {name: a, forward: 10 us, backward: 21 us, output: 90 kB}\n"
          "  - {name: b, forward: 12 us, backward: 20 us}\n");
    write("file.yaml",
          "{workload: {model: layers.yaml}, cluster: {devices: 2, link: {bandwidth: 1 GB/s}}, "
          "pipeline: {schedule: 1f1b, micro_batches: 6}, transfer: {receive: deferred}}");
    EXPECT_EQ(run_well("simulate file.yaml --json").json()["step_time_ns"],
              run_well("simulate file.yaml --json --set run.backend=emulated").json()["step_time_ns"]);
}

// Pairs that are predicted equal are neither right nor wrong, whatever their order in the file.
TEST_F(ErrorPartsOfCompare, EqualPredictionsAreNoOrder) {
    const auto tau_of = [&](const std::vector<std::pair<int, int>>& points) {
        Json list = Json::array();
        for (const auto& [predicted, measured] : points)
            list.push_back({{"step_time_error", 0.0},
                            {"peak_memory_error", 0.0},
                            {"predicted_samples_per_second", predicted},
                            {"measured_samples_per_second", measured}});
        std::filesystem::create_directory(file("points"));
        write("points/accuracy.json", Json{{"schema_version", 1}, {"points", list}}.dump());
        return run_well("validate points --json").json()["kendall_tau"];
    };
    EXPECT_EQ(tau_of({{100, 100}, {100, 110}}), 0);
    EXPECT_EQ(tau_of({{100, 110}, {100, 100}}), 0);
    // Of three pairs, one is predicted equal and two are right; then one is right and one wrong.
    EXPECT_DOUBLE_EQ(tau_of({{100, 100}, {100, 110}, {130, 140}}), 2.0 / 3);
    EXPECT_DOUBLE_EQ(tau_of({{130, 140}, {100, 110}, {100, 100}}), 2.0 / 3);
    EXPECT_EQ(tau_of({{100, 100}, {100, 140}, {130, 120}}), 0);
}

TEST_F(ErrorPartsOfCompare, WhatCannotBeReplayedIsNamed) {
    EXPECT_TRUE(contains(error_of("compare cfg.yaml --replay", 2), "is a config, not a trace"));
    EXPECT_TRUE(contains(error_of("compare slower.json predicted.json --replay", 2), "2 files are named"));
    EXPECT_TRUE(contains(error_of("compare slower.json --replay --why", 2), "--replay takes one trace"));
    Json file = Json::parse(read("slower.json"));
    Json& events = file["traceEvents"];
    // A list with 1B0 before 1F0, with the same times.
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

// What takes no time has no parts.
TEST_F(ErrorPartsOfCompare, AStepWithoutDurationHasNoPercentages) {
    run_well(
        "simulate uniform.yaml --set workload.forward='0 ns' --set workload.backward_input='0 ns' "
        "--set workload.backward_weight='0 ns' --trace none.json");
    const Said said = run_well("compare none.json --replay --explain");
    EXPECT_FALSE(contains(said.out, "nan")) << said.out;
    EXPECT_TRUE(contains(said.out, "Equal stages would not make the step shorter")) << said.out;
}

}  // namespace
}  // namespace pw
