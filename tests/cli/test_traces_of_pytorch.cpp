// Recordings of PyTorch 2.11 and 2.15 by bench/pytorch_traces.py --steps 1 --slow-stage 1 --times --strip.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>

namespace pw {

namespace {

class TracesOfPyTorch : public Cli {
protected:
    static std::string files_of(const char* folder) {
        return fmt::format("{0}/tests/cli/kineto/{1}/rank0.json.gz {0}/tests/cli/kineto/{1}/rank1.json.gz",
                           PIPEWRIGHT_SOURCE_DIR, folder);
    }
};

// What the recorder printed: milliseconds in forward_one_chunk, backward_one_chunk and backward_weight_one_chunk, by
// clocks around these calls. They do not wait for messages. Python's own time around operators is in them, most in I,
// and the loss is not.
struct Recording {
    const char* folder;
    double passes[2];  // by rank
};
constexpr Recording kRecordings[] = {
    {"torch-2.11-GPipe", {260.340, 984.318}},
    {"torch-2.11-1F1B", {442.445, 1840.818}},
    {"torch-2.11-InterleavedZeroBubble", {300.270 + 425.733, 2121.820 + 844.527}},
    {"torch-2.15-GPipe", {353.701, 1539.990}},
    {"torch-2.15-1F1B", {380.365, 1745.447}},
    {"torch-2.15-InterleavedZeroBubble", {443.218 + 640.770, 1611.112 + 474.571}},
    {"torch-2.15-ZBVZeroBubble", {543.848 + 567.938, 6318.525 + 465.809}},
};

}  // namespace

TEST_F(TracesOfPyTorch, WaitingIsNotComputing) {
    for (const Recording& recording : kRecordings) {
        SCOPED_TRACE(recording.folder);
        const Said said = run_well("import " + files_of(recording.folder) + " -o trace.json");
        expect_says(said.err, {"note: the order of the tasks bounds the clocks, against rank 0: rank 1 -"});
        EXPECT_EQ(std::count(said.err.begin(), said.err.end(), '\n'), 1) << said.err;
        const Json valid = run_well("validate trace.json --json").json();
        for (const int rank : {0, 1}) {
            const double busy = valid["devices"][rank]["busy_ns"].get<double>() / 1e6, passes = recording.passes[rank];
            EXPECT_LE(busy, 1.05 * passes);
            EXPECT_GE(busy, 0.8 * passes);
        }
        const Json json = run_well("compare trace.json --replay --explain --json").json()["explanation"];
        EXPECT_EQ(json["slowest_stage"], 1);
        EXPECT_LT(json["balanced_ns"], json["makespan_ns"]);
    }
}

// Where a task computes before it receives, the waiting cannot be told from computing.
TEST_F(TracesOfPyTorch, TasksThatReceiveLateAreNoted) {
    for (const int rank : {0, 1}) {
        Json events = Json::array();
        const auto add = [&](const char* category, const char* name, int start, int duration) {
            events.push_back(
                {{"ph", "X"}, {"cat", category}, {"name", name}, {"tid", 1}, {"ts", start}, {"dur", duration}});
        };
        for (const char* name : {"Forward 0", "Backward 0"}) {
            const int start = name[0] == 'F' ? 100 * rank : 400 - 100 * rank;
            add("user_annotation", name, start, 90);
            add("cpu_op", "aten::mm", start + 1, 10);
            if (name[0] == 'F' && rank == 1)
                add("cpu_op", "c10d::recv_", start + 20, 5);
            add("cpu_op", "aten::mm", start + 70, 10);
        }
        write(fmt::format("rank{}.json", rank),
              Json{{"distributedInfo", {{"rank", rank}, {"world_size", 2}}}, {"traceEvents", events}}.dump());
    }
    expect_says(run_well("import rank0.json rank1.json -o trace.json").err,
                {"note: 1 tasks of rank 1 receive messages after they have begun to compute"});
}

TEST_F(TracesOfPyTorch, FilesOfTwoRunsAreNotOnePipeline) {
    for (const int rank : {0, 1}) {
        Json events = Json::array();
        for (const char* name : {"Forward", "Backward"})
            for (int microbatch = 0; microbatch < (rank == 0 ? 4 : 2); ++microbatch)
                events.push_back({{"ph", "X"},
                                  {"cat", "user_annotation"},
                                  {"name", fmt::format("{} {}", name, microbatch)},
                                  {"ts", 10 * microbatch + (name[0] == 'F' ? 0 : 100)},
                                  {"dur", 5}});
        write(fmt::format("rank{}.json", rank),
              Json{{"distributedInfo", {{"rank", rank}, {"world_size", 2}}}, {"traceEvents", events}}.dump());
    }
    expect_says(error_of("import rank0.json rank1.json -o trace.json", 2),
                {"are of different runs: the first has 4 micro-batches, the second 2", "files of one run"});
    const std::string folder = std::string(PIPEWRIGHT_SOURCE_DIR) + "/tests/cli/kineto/torch-2.";
    expect_says(
        run_well(fmt::format("import {0}15-GPipe/rank0.json.gz {0}11-GPipe/rank1.json.gz -o trace.json", folder)).err,
        {"more than the whole recording lasts", "of different runs"});
}

// Schedule1F1B annotates nothing.
TEST_F(TracesOfPyTorch, AScheduleWithoutAnnotationsIsToldHowToAnnotate) {
    write("rank0.json", R"({"distributedInfo": {"rank": 0, "world_size": 2}, "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "tid": 1, "ts": 0, "dur": 9},
        {"ph": "X", "cat": "user_annotation", "name": "gloo:recv", "tid": 1, "ts": 0, "dur": 9}]})");
    expect_says(error_of("import rank0.json -o trace.json", 2),
                {"none of its events is a task", "'gloo:recv'", "Schedule1F1B does not",
                 "annotate(stage) in bench/pytorch_traces.py", "record_function"});
}

TEST_F(TracesOfPyTorch, FoldersAndOtherSuffixesAreRefused) {
    std::filesystem::create_directory(file("traces"));
    expect_says(error_of("import traces -o trace.json", 2), {"'traces' is a folder without traces"});
    expect_says(error_of("import " + files_of("torch-2.15-GPipe") + " -o trace.txt", 2),
                {"*.json.gz", "*.yaml", "not 'trace.txt'", "pipewright plot"});
    EXPECT_FALSE(std::filesystem::exists(file("trace.txt")));
}

}  // namespace pw
