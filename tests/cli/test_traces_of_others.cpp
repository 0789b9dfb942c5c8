// Traces of other programs, and parts of pipewright's own: one reader for all commands.
#include "tests/support/cli_rig.h"
#include "tests/support/public_data.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

namespace pw {

namespace {

class TracesOfOthers : public Cli {
protected:
    static Json task(int device, int start, int duration, const char* op, int stage, int microbatch) {
        return {{"ph", "X"},
                {"pid", device},
                {"ts", start},
                {"dur", duration},
                {"args", {{"op", op}, {"stage", stage}, {"microbatch", microbatch}}}};
    }
    // An annotation of PyTorch on the host, and a little later on the GPU.
    static void annotate(Json& events, const std::string& name, double start, double duration) {
        for (const auto& [category, later] :
             {std::pair("user_annotation", 0.0), std::pair("gpu_user_annotation", 30.0)})
            events.push_back({{"ph", "X"},
                              {"cat", category},
                              {"name", name},
                              {"pid", 1},
                              {"tid", 7},
                              {"ts", 5000.125 + start + later},
                              {"dur", duration}});
    }
    void write_rank(const std::string& name, int rank, const Json& events) const {
        write(name, Json{{"schemaVersion", 1},
                         {"distributedInfo", {{"rank", rank}, {"world_size", 2}}},
                         {"baseTimeNanoseconds", 1'760'000'000'000'000'000},
                         {"traceEvents", events}}
                        .dump());
    }
    // Two micro-batches on two ranks, F 10 ms, B 20 ms, 1 ms between ranks: 0F0 0F1
    // 1F0 1B0 1F1 1B1
    // 0B0 0B1.
    // The clock of rank 1 is `late` us ahead of that of rank 0.
    void write_ranks(const char* forward, const char* backward, int steps = 1, double late = 0) const {
        for (const int rank : {0, 1}) {
            Json events = Json::array();
            for (int step = 0; step < steps; ++step) {
                const auto add = [&](const char* form, int microbatch, double start, double duration) {
                    annotate(events, fmt::format(fmt::runtime(form), rank, microbatch),
                             start + 200'000 * step + (rank == 1 ? late : 0), duration);
                };
                if (steps > 1)
                    annotate(events, fmt::format("ProfilerStep#{}", step + 5), 200'000 * step + (rank == 1 ? late : 0),
                             150'000);
                const double first = rank == 0 ? 0 : 11'000;
                add(forward, 0, first, 10'000);
                add(forward, 1, rank == 0 ? 10'000 : 41'000, 10'000);
                add(backward, 0, rank == 0 ? 42'000 : 21'000, 20'000);
                add(backward, 1, rank == 0 ? 72'000 : 51'000, 20'000);
            }
            write_rank(fmt::format("rank{}.json", rank), rank, events);
        }
    }
    Json replayed(const std::string& files) const { return run_well("compare " + files + " --replay --json").json(); }
};

}  // namespace

// F 10, B 20: device 0 ends at 10 + 10 + 20 + 20 + 20, with its second backward.
TEST_F(TracesOfOthers, NeedNoUpdates) {
    write("foreign.json", Json{{"traceEvents",
                                {task(0, 0, 10, "F", 0, 0), task(0, 10, 10, "F", 0, 1), task(1, 10, 10, "F", 1, 0),
                                 task(1, 20, 20, "B", 1, 0), task(1, 40, 10, "F", 1, 1), task(1, 50, 20, "B", 1, 1),
                                 task(0, 40, 20, "B", 0, 0), task(0, 70, 20, "B", 0, 1)}}}
                              .dump());
    const Json json = replayed("foreign.json");
    EXPECT_EQ(json["step_time_ns"], 90'000);
    EXPECT_EQ(json["replayed_ns"], 90'000);
    Json some = Json::parse(read("foreign.json"));  // one stage's update is recorded
    some["traceEvents"].push_back(task(0, 90, 5, "U", 0, 1));
    write("some.json", some.dump());
    EXPECT_EQ(replayed("some.json")["replayed_ns"], 95'000);
    const Json valid = run_well("validate foreign.json --json").json();
    EXPECT_EQ(valid["step_time_ns"], 90'000);
    EXPECT_EQ(valid["tasks"], 8);
    run_well("plot foreign.json -o picture.html");
    run_well("plot foreign.json -o drawn.json");
    EXPECT_EQ(run_well("validate drawn.json --json").json()["step_time_ns"], 90'000);
}

TEST_F(TracesOfOthers, ThePublicOneIsReplayed) {
    PIPEWRIGHT_NEED_DATA(path, "field/01-foreign-trace/trace.json");
    EXPECT_EQ(replayed(path)["step_time_ns"], 90'000);
    EXPECT_EQ(replayed(path)["replayed_ns"], 90'000);
    run_well(fmt::format("validate {}", path));
    run_well(fmt::format("plot {} -o x.txt", path));
}

TEST_F(TracesOfOthers, APartKeepsItsSteps) {
    run_well("simulate mlp.yaml --trace predicted.json");
    run_well("run mlp.yaml --trace measured.json --steps 5");
    run_well("plot measured.json --step 3 -o part.json");
    run_well("validate part.json");
    run_well("plot part.json -o part.txt");
    run_well("compare predicted.json part.json");
    run_well("compare part.json --replay");
}

// 92 ms with the hops; 10 + 10 + 20 + 10 + 20 + 20 without.
TEST_F(TracesOfOthers, FilesOfTheProfilerAreOneTrace) {
    for (const auto& [forward, backward] :
         {std::pair("PP:{}F{}", "PP:{}B{}"), std::pair("Forward {1}", "Backward {1}")}) {
        write_ranks(forward, backward);
        for (const char* files : {"rank0.json rank1.json", "rank1.json rank0.json"}) {
            const Json json = replayed(files);
            EXPECT_EQ(json["step_time_ns"], 92'000'000) << forward;
            EXPECT_EQ(json["replayed_ns"], 90'000'000) << forward;
        }
        const Json valid = run_well("validate rank0.json rank1.json --json").json();
        EXPECT_EQ(valid["devices"][0]["busy_ns"], 60'000'000);
        EXPECT_EQ(valid["devices"][1]["busy_ns"], 60'000'000);
        EXPECT_NEAR(valid["bubble_ratio"].get<double>(), 32.0 / 60, 1e-9);
        run_well("plot rank0.json rank1.json -o x.html");
    }
}

TEST_F(TracesOfOthers, StepsAreThoseOfTheProfiler) {
    write_ranks("PP:{}F{}", "PP:{}B{}", 3);
    const Json json = replayed("rank0.json rank1.json");
    EXPECT_EQ(json["step_time_ns"], 92'000'000);
    EXPECT_GE(json["step"], 1) << "the first step is no sample";
    run_well("plot rank0.json rank1.json --step 2 -o x.json");
    run_well("import rank0.json rank1.json -o trace.json");
    expect_says(error_of("plot trace.json --step 3 -o x.json", 2), {"no step 3"});
}

// 1F0 follows 0F0, which ends at 10 ms: a clock that shows 6 ms there is moved by 4, and 0B0 begins 5 ms after 1B0.
TEST_F(TracesOfOthers, ClocksAreMovedUntilInputsComeFirst) {
    write_ranks("PP:{}F{}", "PP:{}B{}", 1, -5'000);
    const Said early = run_well("import rank0.json rank1.json -o trace.json");
    expect_says(early.err, {"note: clocks differ", "rank 1 4.000 ms"});
    Json json = replayed("trace.json");
    EXPECT_EQ(json["step_time_ns"], 92'000'000);
    EXPECT_EQ(json["replayed_ns"], 90'000'000);
    write_ranks("PP:{}F{}", "PP:{}B{}", 1, 3'000);  // 1B0 ends at 44 ms, and 0B0 begins at 42
    const Said late = run_well("import rank1.json rank0.json -o trace.json");
    expect_says(late.err, {"note: clocks differ", "rank 0 2.000 ms"});
    EXPECT_EQ(replayed("trace.json")["step_time_ns"], 92'000'000);
    write_ranks("PP:{}F{}", "PP:{}B{}", 1, 0.5);  // within the millisecond of each message
    EXPECT_EQ(run_well("import rank0.json rank1.json -o trace.json").err.find("clocks differ"), std::string::npos);
    Json rank = Json::parse(read("rank0.json"));  // 0B1 begins at 62 ms, and its input is made at 71
    for (Json& event : rank["traceEvents"])
        if (event["name"] == "PP:0B1")
            event["ts"] = event["ts"].get<double>() - 10'000;
    write("rank0.json", rank.dump());
    expect_says(
        run_well("import rank0.json rank1.json -o trace.json").err,
        {"note: the clocks of the ranks cannot be aligned", "0B1 of rank 0 begins 9.001 ms before 1B1 of rank 1"});
}

// Messages take 1 ms in each direction: only a clock that is off by more than that contradicts the order of tasks.
TEST_F(TracesOfOthers, TheOrderOfTasksBoundsClocks) {
    const auto notes = [&](double late) {
        write_ranks("PP:{}F{}", "PP:{}B{}", 1, late);
        return run_well("import rank0.json rank1.json -o trace.json").err;
    };
    expect_says(notes(0),
                {"note: the order of the tasks bounds the clocks, against rank 0: rank 1 -1.000 ms to +1.000 ms"});
    for (const double late : {-990.0, -400.0, 400.0, 990.0})
        EXPECT_EQ(notes(late).find("clocks differ"), std::string::npos) << late;
    for (const double late : {-1010.0, 1010.0})
        EXPECT_NE(notes(late).find("clocks differ"), std::string::npos) << late;
    expect_says(notes(400), {"rank 1 -1.400 ms to +600.0 us"});
}

// From 0 to 1 a message takes 1 ms and back 2, from 1 to 2 it takes 3 and back 4. The clock of rank 2 is as sure as the
// sums: 1 + 3 and 4 + 2. Nothing but forwards bounds a clock in one direction.
TEST_F(TracesOfOthers, ClocksOfDistantRanksAreLessSure) {
    struct Pass {
        const char* name;
        int start, duration;
    };
    const Pass passes[3][2] = {{{"F0_s0", 0, 10}, {"B0_s0", 80, 20}},
                               {{"F0_s1", 11, 10}, {"B0_s1", 58, 20}},
                               {{"F0_s2", 24, 10}, {"B0_s2", 34, 20}}};
    for (const bool trains : {true, false}) {
        for (const int rank : {0, 1, 2}) {
            Json events = Json::array();
            for (const Pass& pass : passes[rank])
                if (trains || pass.name[0] == 'F')
                    events.push_back(
                        {{"ph", "X"}, {"name", pass.name}, {"ts", pass.start * 1000}, {"dur", pass.duration * 1000}});
            write(fmt::format("r{}.json", rank), events.dump());
        }
        expect_says(run_well("import r0.json r1.json r2.json -o trace.json").err,
                    {trains ? "rank 2 -4.000 ms to +6.000 ms, rank 1 -1.000 ms to +2.000 ms"
                            : "rank 2 -4.000 ms to +any, rank 1 -1.000 ms to +any"});
    }
}

// One operator computes from 2 ms after the beginning of its annotation to 1 ms before its end; messages are around it.
TEST_F(TracesOfOthers, WaitsOfTheHostAreNoTimeOfTasks) {
    write_ranks("PP:{}F{}", "PP:{}B{}");
    for (const char* name : {"rank0.json", "rank1.json"}) {
        Json file = Json::parse(read(name)), events = Json::array();
        for (const Json& event : file["traceEvents"]) {
            if (event["cat"] != "user_annotation")
                continue;
            events.push_back(event);
            const double start = event["ts"], duration = event["dur"];
            for (const auto& [operation, begin, end] :
                 {std::tuple("c10d::recv_", 0.0, 1'900.0), std::tuple("aten::mm", 2'000.0, duration - 1'000),
                  std::tuple("aten::t", 2'500.0, 2'600.0), std::tuple("c10d::send", duration - 900, duration)})
                events.push_back({{"ph", "X"},
                                  {"cat", "cpu_op"},
                                  {"name", operation},
                                  {"tid", 7},
                                  {"ts", start + begin},
                                  {"dur", end - begin}});
            events.push_back(
                {{"ph", "X"}, {"cat", "cpu_op"}, {"name", "aten::copy_"}, {"tid", 8}, {"ts", start}, {"dur", 1}});
        }
        file["traceEvents"] = events;
        write(name, file.dump());
    }
    const Json valid = run_well("validate rank0.json rank1.json --json").json();
    EXPECT_EQ(valid["step_time_ns"], 89'000'000);
    EXPECT_EQ(valid["devices"][0]["busy_ns"], 48'000'000);
}

// The kernels of messages are on a stream of their own, where an annotation lasts as long as it waits.
TEST_F(TracesOfOthers, TheStreamOfTheGpuIsTheOneThatComputes) {
    write_ranks("PP:{}F{}", "PP:{}B{}");
    for (const char* name : {"rank0.json", "rank1.json"}) {
        Json file = Json::parse(read(name));
        Json more = Json::array();
        for (const Json& event : file["traceEvents"])
            if (event["cat"] == "gpu_user_annotation") {
                Json waits = event, kernel = event, message = event;
                waits["tid"] = 20;
                waits["ts"] = event["ts"].get<double>() - 2'000;
                waits["dur"] = event["dur"].get<double>() + 4'000;
                kernel["cat"] = message["cat"] = "kernel";
                kernel["name"] = "gemm";
                message["name"] = "ncclDevKernel_SendRecv";
                message["tid"] = 20;
                for (const Json& one : {waits, kernel, message})
                    more.push_back(one);
            }
        for (const Json& event : more)
            file["traceEvents"].push_back(event);
        write(name, file.dump());
    }
    const Json valid = run_well("validate rank0.json rank1.json --json").json();
    EXPECT_EQ(valid["step_time_ns"], 92'000'000);
    EXPECT_EQ(valid["devices"][0]["busy_ns"], 60'000'000);
}

TEST_F(TracesOfOthers, StepsThatARankLacksAreLeftOut) {
    write_ranks("PP:{}F{}", "PP:{}B{}", 3);
    Json file = Json::parse(read("rank1.json"));
    Json& events = file["traceEvents"];
    while (events.size() > 20)  // two steps: an event of the profiler on the host and the GPU, and four tasks on each
        events.erase(events.size() - 1);
    write("rank1.json", file.dump());
    const Said said = run_well("import rank0.json rank1.json -o trace.json");
    expect_says(said.out, {"steps: 2"});
    expect_says(said.err, {"note: step 7 is left out: only rank 0 has tasks in it"});
    while (events.size() > 10)
        events.erase(0);
    for (Json& event : events)
        if (event["name"] == "ProfilerStep#6")
            event["name"] = "ProfilerStep#9";
    write("rank1.json", file.dump());
    expect_says(error_of("import rank0.json rank1.json -o trace.json", 2),
                {"no step in common", "rank 0 has 5, 6, 7; rank 1 has 9", "help"});
}

TEST_F(TracesOfOthers, ReplicasAreNotOnePipeline) {
    write_ranks("PP:{}F{}", "PP:{}B{}");
    for (const int rank : {0, 1}) {
        Json file = Json::parse(read(fmt::format("rank{}.json", rank)));
        file["distributedInfo"] = {{"rank", rank + 2}, {"world_size", 4}};
        write(fmt::format("rank{}.json", rank + 2), file.dump());
    }
    expect_says(error_of("import rank0.json rank1.json rank2.json rank3.json -o trace.json", 2),
                {"rank0.json", "rank2.json", "both have 0F0 in step 0", "data parallel"});
    run_well("import rank2.json rank3.json -o trace.json");  // numbered from 0 wherever the names have stages
    write_ranks("Forward {1}", "Backward {1}");
    Json file = Json::parse(read("rank1.json"));
    file["distributedInfo"] = {{"rank", 4}, {"world_size", 8}};
    write("rank1.json", file.dump());
    const Said said = run_well("import rank0.json rank1.json -o trace.json");
    EXPECT_FALSE(contains(said.err, "ranks ran")) << said.err;  // rank 0 says that two ranks ran
    EXPECT_EQ(replayed("trace.json")["step_time_ns"], 92'000'000);
}

TEST_F(TracesOfOthers, MissingPartsOfTheProfilersFilesAreReported) {
    write_ranks("PP:{}F{}", "PP:{}B{}");
    expect_says(error_of("compare rank0.json --replay", 2), {"rank 0 of 2", "files of all ranks"});
    expect_says(error_of("validate rank1.json", 2), {"rank 1 of 2"});
    expect_says(error_of("compare rank0.json rank0.json --replay", 2), {"both of rank 0"});
    Json events = Json::array();
    annotate(events, "PP:(0F1;1B0)OVERLAP_F_B", 0, 5);
    annotate(events, "PP:0F0", 0, 5);
    write_rank("pair.json", 0, events);
    expect_says(error_of("compare pair.json rank1.json --replay", 2), {"pair.json", "traceEvents[0].name", "overlap"});
    events = Json::array();
    annotate(events, "PP:2F0", 0, 5);
    write_rank("rank0.json", 0, events);
    expect_says(error_of("compare rank0.json rank1.json --replay", 2), {"stage 0", "files of all ranks"});
    write("none.json", R"({"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm"}]})");
    expect_says(error_of("plot none.json -o x.txt", 2),
                {"none of its events is a task", "torch.profiler", "PP:0F1", "it has events 'gemm'"});
    events = Json::array();
    annotate(events, "Optimizer.step#SGD.step", 0, 5);
    write_rank("none.json", 0, events);
    expect_says(error_of("import none.json -o x.json", 2),
                {"none.json", "it has annotations 'Optimizer.step#SGD.step'", "help"});
    write_ranks("PP:{}F{}", "PP:{}B{}");
    expect_says(error_of("import rank1.json none.json -o x.json", 2),
                {"none.json", "it has annotations 'Optimizer.step#SGD.step'", "help"});
}

TEST_F(TracesOfOthers, ThePublicRanksHaveTheirBubble) {
    PIPEWRIGHT_NEED_DATA(folder, "field/16-torch-profiler");
    const std::string files = fmt::format("{0}/rank0.json {0}/rank1.json", folder);
    const Json json = replayed(files);
    EXPECT_EQ(json["step_time_ns"], 152'000'000);
    EXPECT_EQ(json["replayed_ns"], 150'000'000);
    const Json valid = run_well("validate --json " + files).json();
    for (const int device : {0, 1})
        EXPECT_EQ(valid["devices"][device]["busy_ns"], 120'000'000);
    EXPECT_NEAR(valid["bubble_ratio"].get<double>(), 32.0 / 120, 1e-9);
    EXPECT_NEAR(valid["bubble_rate"].get<double>(), 32.0 / 152, 1e-9);
}

}  // namespace pw
