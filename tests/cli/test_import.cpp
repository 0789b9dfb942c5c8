// import: traces of other programs become ours.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace pw {

namespace {

class Import : public Cli {
protected:
    // Two micro-batches on two devices, F 10 ms, B 20 ms, without time between: 0F0 0F1 ... 0B0 0B1, 90 ms.
    struct Slice {
        int device;
        char op;
        int microbatch, start, duration;
    };
    static constexpr Slice kSlices[] = {{0, 'F', 0, 0, 10},  {0, 'F', 1, 10, 10}, {1, 'F', 0, 10, 10},
                                        {1, 'B', 0, 20, 20}, {1, 'F', 1, 40, 10}, {1, 'B', 1, 50, 20},
                                        {0, 'B', 0, 40, 20}, {0, 'B', 1, 70, 20}};

    template <class Make>
    static Json events_of(Make make) {
        Json events = Json::array();
        for (const Slice& slice : kSlices) {
            Json event = {{"ph", "X"}, {"ts", slice.start * 1000}, {"dur", slice.duration * 1000}};
            make(slice, event);
            events.push_back(event);
        }
        return events;
    }
    Json valid(const std::string& files) const { return run_well("validate --json " + files).json(); }
    void expect_imported(const Json& file) const {
        write("foreign.json", file.dump());
        EXPECT_EQ(run_well("import foreign.json -o trace.json").err, "");
        const Json json = valid("trace.json");
        EXPECT_EQ(json["step_time_ns"], 90'000'000) << file.dump(1);
        EXPECT_EQ(json["stages"], 2);
        EXPECT_EQ(json["tasks"], 8);
        EXPECT_EQ(json["devices"][0]["busy_ns"], 60'000'000);
        EXPECT_EQ(json["devices"][1]["busy_ns"], 60'000'000);
    }
};

}  // namespace

// bench/pytorch_traces.py made the files. The numbers are sums over the operators in PP:0F0 ... that another program,
// in Python, found in them: from 1F0 to 0B1 135.805 ms.
TEST_F(Import, FilesOfPyTorch) {
    const std::string files = PIPEWRIGHT_SOURCE_DIR "/tests/cli/kineto/rank0.json.gz " PIPEWRIGHT_SOURCE_DIR
                                                    "/tests/cli/kineto/rank1.json.gz";
    const Said said = run_well("import " + files + " -o trace.json.gz");
    expect_says(said.err, {"note: the order of the tasks bounds the clocks, against rank 0: rank 1 -"});
    EXPECT_EQ(std::count(said.err.begin(), said.err.end(), '\n'), 1) << said.err;
    expect_says(said.out, {"step 135.8 ms", "devices: 2, stages: 4, micro-batches: 2, steps: 1"});
    const Json json = valid("trace.json.gz");
    EXPECT_NEAR(json["step_time_ns"].get<double>(), 135'804'994, 10);
    EXPECT_NEAR(json["devices"][0]["busy_ns"].get<double>(), 48'457'724, 10);
    EXPECT_NEAR(json["devices"][1]["busy_ns"].get<double>(), 87'267'478, 10);
    run_well("plot trace.json.gz -o x.html");
    run_well("compare trace.json.gz --replay");
    run_well("compare trace.json.gz trace.json.gz");
}

TEST_F(Import, NamesOfEvents) {
    expect_imported(events_of([](const Slice& slice, Json& event) {  // a list, and the stage is the process
        event["name"] = fmt::format("{}{}", slice.op, slice.microbatch);
        event["pid"] = 10 * slice.device + 5;
    }));
    expect_imported({{"traceEvents", events_of([](const Slice& slice, Json& event) {
                          event["name"] = fmt::format("{}{}{}", slice.device, slice.op, slice.microbatch);
                          event["pid"] = 1;
                          event["tid"] = slice.device == 0 ? 9 : 10;
                      })}});
    expect_imported({{"traceEvents", events_of([](const Slice& slice, Json& event) {
                          event["name"] = fmt::format("stage{}: {} micro-batch {}", slice.device,
                                                      slice.op == 'F' ? "Forward" : "backward_pass", slice.microbatch);
                          event["pid"] = fmt::format("worker {}", slice.device);
                      })}});
    expect_imported({{"traceEvents", events_of([](const Slice& slice, Json& event) {
                          event["name"] = "task";
                          event["pid"] = slice.device;
                          event["args"] = {{"type", slice.op == 'F' ? "fwd" : "bwd"},
                                           {"stage_id", slice.device},
                                           {"mb", fmt::format("{}", slice.microbatch)}};
                      })}});
}

TEST_F(Import, BeginningsAndEnds) {
    Json events = Json::array();
    for (const Json& event : events_of([](const Slice&slice, Json&made) {
             made["name"] = fmt::format("{} {}", slice.op == 'F' ? "fwd" : "bwd", slice.microbatch);
             made["pid"] = slice.device;
         })) {
        const double start = event["ts"], end = start + event["dur"].get<double>();
        events.push_back({{"ph", "B"}, {"name", event["name"]}, {"pid", event["pid"]}, {"ts", start}});
        events.push_back({{"ph", "B"}, {"name", "matmul"}, {"pid", event["pid"]}, {"ts", start}});
        events.push_back({{"ph", "E"}, {"pid", event["pid"]}, {"ts", end}});
        events.push_back({{"ph", "E"}, {"pid", event["pid"]}, {"ts", end}});
    }
    expect_imported({{"traceEvents", events}});
    Json cut = events;
    cut.erase(cut.size() - 1);  // 0B1 does not end
    write("foreign.json", cut.dump());
    expect_says(error_of("import foreign.json -o x.json", 2), {"foreign.json", "0B1", "help"});
    events[2]["ts"] = events[3]["ts"] = -1;
    write("foreign.json", events.dump());
    expect_says(error_of("import foreign.json -o x.json", 2), {"traceEvents[3].ts", "microseconds"});
}

TEST_F(Import, StepsOfNamedEvents) {
    Json events = Json::array();
    for (const int step : {0, 1, 2})
        for (Json event : events_of([](const Slice&slice, Json&made) {
                 made["name"] = fmt::format("{}{}", slice.op, slice.microbatch);
                 made["pid"] = slice.device;
             })) {
            event["ts"] = event["ts"].get<int>() + 100'000 * step;
            events.push_back(event);
        }
    write("foreign.json", events.dump());
    expect_says(run_well("import foreign.json -o trace.json").out, {"steps: 3", "step 90.00 ms"});
    events.erase(events.size() - 1);
    write("foreign.json", events.dump());
    const Said said = run_well("import foreign.json -o trace.json");
    expect_says(said.out, {"steps: 2"});
    expect_says(said.err, {"note: step 2 is left out: rank 0 has no 0B1 in it"});
    while (events.size() > 7)  // the only step lacks 0B1
        events.erase(7);
    write("foreign.json", events.dump());
    expect_says(error_of("import foreign.json -o x.json", 2), {"foreign.json", "0B1", "help"});
}

// Stage 1 takes twice as long: 0F0 10, 1F0 20, 1B0 40, 1F1 20, 1B1 40, 0B1 20 are the critical path. With F 15 and B 30
// it is 15 + 15 + 30 + 15 + 30 + 30.
TEST_F(Import, TheSlowStageIsNamed) {
    Json events = Json::array();
    const auto add = [&](const char* name, int device, int start, int duration) {
        events.push_back(
            {{"ph", "X"}, {"name", name}, {"pid", device}, {"ts", start * 1000}, {"dur", duration * 1000}});
    };
    add("F0", 0, 0, 10);
    add("F1", 0, 10, 10);
    add("F0", 1, 10, 20);
    add("B0", 1, 30, 40);
    add("F1", 1, 70, 20);
    add("B1", 1, 90, 40);
    add("B0", 0, 70, 20);
    add("B1", 0, 130, 20);
    write("foreign.json", events.dump());
    run_well("import foreign.json -o trace.json");
    const Json json = run_well("compare trace.json --replay --explain --json").json()["explanation"];
    EXPECT_EQ(json["makespan_ns"], 150'000'000);
    EXPECT_EQ(json["balanced_ns"], 135'000'000);
    EXPECT_EQ(json["slowest_stage"], 1);
    EXPECT_EQ(json["stages"], (Json{{{"work_ns", 30'000'000}, {"critical_ns", 30'000'000}},
                                    {{"work_ns", 60'000'000}, {"critical_ns", 120'000'000}}}));
    EXPECT_EQ(json["critical_ns"], (Json{30'000'000, 120'000'000}));
    const std::string text = run_well("compare foreign.json --replay --explain").out;
    expect_says(text, {"Stage 1 is the slowest: 60.00 ms for a micro-batch, and the mean of the stages is 45.00 ms.",
                       "120.0 ms of 150.0 ms of the critical path are its tasks.",
                       "With equal stages the step would take 135.0 ms, 10.0 % less."});
    EXPECT_FALSE(run_well("compare trace.json --replay --json").json().contains("explanation"));
    for (Json& event : events)  // 10 ms pass before the last task: they are in no replay
        if (event["ts"] == 130'000)
            event["ts"] = 140'000;
    write("late.json", events.dump());
    expect_says(run_well("compare late.json --replay --explain").out,
                {"With equal stages the replay would take 135.0 ms instead of 150.0 ms: 15.00 ms less, 9.4 % of the "
                 "measured step of 160.0 ms."});
    write("equal.json", events_of([](const Slice& slice, Json& event) {
                            event["name"] = fmt::format("{}{}", slice.op, slice.microbatch);
                            event["pid"] = slice.device;
                        }).dump());
    expect_says(run_well("compare equal.json --replay --explain").out,
                {"All stages take about the same", "Equal stages would not make the step shorter."});
    expect_says(error_of("compare trace.json trace.json --explain", 2), {"--explain", "--replay --explain"});
}

// Predicted F 10, B 20 on both stages are 90 ms; measured stage 1 takes 2 ms more for each backward, and there is 1 ms
// before 1F0: 95 ms. The predicted plan has transfers and updates, the measured one has not.
TEST_F(Import, APredictionIsComparedWithIt) {
    write("two.yaml", R"(
workload: {model: uniform, stages: 2, forward: 10 ms, backward_input: 10 ms, backward_weight: 10 ms}
cluster: {devices: 2}
pipeline: {schedule: 1f1b, micro_batches: 2}
)");
    run_well("simulate two.yaml --trace predicted.json");
    Json events = events_of([](const Slice& slice, Json& event) {
        event["name"] = fmt::format("{}{}", slice.op, slice.microbatch);
        event["pid"] = slice.device;
        const bool slow = slice.device == 1 && slice.op == 'B';
        const int late = slice.device == 1 ? 1 + (slice.start > 20 ? 2 : 0) : slice.start < 40 ? 0 : 3;
        event["ts"] = (slice.start + late + (slice.device == 0 && slice.start == 70 ? 2 : 0)) * 1000;
        event["dur"] = (slice.duration + (slow ? 2 : 0)) * 1000;
    });
    write("foreign.json", events.dump());
    run_well("import foreign.json -o trace.json");
    const Json json = run_well("compare predicted.json trace.json --json").json();
    EXPECT_EQ(json["measured"]["step_time_ns"], 95'000'000);
    EXPECT_EQ(json["predicted"]["step_time_ns"], 90'000'000);
    EXPECT_EQ(json["error_parts"]["mechanics"]["hand_over_ns"], -1'000'000);
    EXPECT_EQ(json["error_parts"]["costs_ns"], -4'000'000);
    EXPECT_EQ(json["error_parts"]["by_task"][0]["op"], "B");
    EXPECT_EQ(json["error_parts"]["by_task"][0]["stage"], 1);
    run_well("compare predicted.json trace.json --why --plot both.html");
    run_well("simulate two.yaml --set pipeline.schedule=gpipe --trace gpipe.json");
    expect_says(run_well("compare gpipe.json trace.json").err,
                {"different plans: device 1 runs 1B0 where the other has 1F1", "next to each other"});
    run_well("simulate two.yaml --set pipeline.micro_batches=3 --trace three.json");
    expect_says(error_of("compare three.json trace.json --why", 2), {"different plans"});
    expect_says(run_well("compare trace.json predicted.json").err, {"different plans"});
}

TEST_F(Import, WhatIsNoTaskIsSaid) {
    const Json names = {"aten::mm", "conv2d_backward", "LinearBackward0", "Optimizer.step#SGD.step", "forward_hook"};
    Json events = Json::array();
    for (const Json& name : names)
        events.push_back({{"ph", "X"}, {"name", name}, {"pid", 0}, {"ts", 0}, {"dur", 1}});
    write("foreign.json", events.dump());
    expect_says(error_of("import foreign.json -o x.json", 2),
                {"trace 'foreign.json'", "none of its events is a task of a plan",
                 "F3, 1F3, 'fwd mb 3 stage 1' or forward_step", "PP:0F1", "args op",
                 "it has events 'aten::mm', 'conv2d_backward'", "help: "});
    EXPECT_FALSE(std::filesystem::exists(file("x.json")));
    write("foreign.json", R"([{"ph": "X", "name": "forward", "pid": 0, "ts": 0, "dur": 1}])");
    expect_says(error_of("import foreign.json -o x.json", 2), {"no number of the micro-batch", "no backwards"});
    write("foreign.json", "[]");
    expect_says(error_of("import foreign.json -o x.json", 2), {"no events with names"});
    expect_says(error_of("import mlp.yaml -o x.json", 2), {"is a config, not a trace", "pipewright simulate"});
    expect_says(error_of("import absent.json -o x.json", 2), {"absent.json"});
    expect_says(error_of("import foreign.json", 2), {"--output is required"});
}

}  // namespace pw
