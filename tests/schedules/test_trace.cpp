#include "schedules/trace/trace.h"
#include "schedules/trace/trace_json.h"
#include "tests/support/sample_traces.h"
#include "tests/support/temporary_folder.h"
#include "workloads/error.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include <set>
#include <sstream>

namespace pw {
namespace {

using nlohmann::json;

// A file in a folder of this process: ctest runs one process per test, several at a time.
std::string file_in_temp(const std::string& name) {
    static const TemporaryFolder folder;
    return (folder.path() / name).string();
}

std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

json written(const Trace& trace) {
    const std::string path = file_in_temp("written.json");
    write_trace(trace, path);
    return json::parse(contents(path));
}

// Round trip

class RoundTrip : public testing::TestWithParam<SampleTrace> {};

TEST_P(RoundTrip, RestoresTheTraceByValue) {
    const Trace trace = sample_trace(GetParam());
    const std::string path = file_in_temp("round_trip.json");
    write_trace(trace, path);
    EXPECT_TRUE(read_trace(path) == trace);

    const std::string again = file_in_temp("round_trip_again.json");
    write_trace(read_trace(path), again);
    EXPECT_EQ(contents(path), contents(again));
}

INSTANTIATE_TEST_SUITE_P(Grid, RoundTrip,
                         testing::Values(SampleTrace{}, SampleTrace{.devices = 1, .microbatches = 1},
                                         SampleTrace{.devices = 3, .jitter = 0.4, .steps = 3},
                                         SampleTrace{.transfer = 0}, SampleTrace{.transfer = 9'000'000},
                                         SampleTrace{.microbatches = 16, .asynchronous = true}));

TEST(TraceFile, KeepsFieldsOutsideATasksIdentity) {
    Trace trace = sample_trace();
    trace.events[1].task.with_next = true;
    trace.events.back().end = std::int64_t{1} << 61;
    const std::string path = file_in_temp("identity.json");
    write_trace(trace, path);
    const Trace back = read_trace(path);
    EXPECT_TRUE(back == trace);
    EXPECT_TRUE(back.events[1].task.with_next);
    EXPECT_FALSE(back.events[0].task.with_next);
}

// Files of this version have the reserved memory of each device; older ones do not.
TEST(TraceFile, KeepsReservedMemory) {
    Trace trace = sample_trace({.devices = 2, .microbatches = 2});
    trace.reserved = {0, Bytes{1} << 40};
    const std::string path = file_in_temp("reserved.json");
    write_trace(trace, path);
    EXPECT_EQ(read_trace(path).reserved, trace.reserved);
    EXPECT_TRUE(read_trace(path) == trace);
}

TEST(TraceFile, WritesAnEmptyTrace) {
    const std::string path = file_in_temp("empty.json");
    write_trace(Trace{}, path);
    EXPECT_TRUE(read_trace(path) == Trace{});
}

TEST(TraceFile, NamesAPathThatCannotBeWritten) {
    try {
        write_trace(sample_trace(), "/nonexistent/trace.json");
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::RunFailed);
        EXPECT_NE(std::string(error.what()).find("/nonexistent/trace.json"), std::string::npos);
    }
}

// Rules of the Chrome format

TEST(ChromeTrace, TimesAreMicrosecondsToTheNanosecond) {
    const json file = written(sample_trace());
    for (const json& event : file.at("traceEvents")) {
        if (event.at("ph") != "X")
            continue;
        const json& args = event.at("args");
        EXPECT_EQ(std::llround(event.at("ts").get<double>() * 1000), args.at("start_ns").get<Ns>());
        EXPECT_EQ(std::llround(event.at("dur").get<double>() * 1000),
                  args.at("end_ns").get<Ns>() - args.at("start_ns").get<Ns>());
        for (const char* key : {"step", "device", "rank", "op", "stage", "microbatch", "slice", "peer", "start_ns",
                                "end_ns", "bytes", "version"})
            EXPECT_TRUE(args.contains(key)) << key;
    }
}

// On a device with several stages, whose F0 would be alike.
TEST(ChromeTrace, NamesHaveTheStageWhereADeviceHasSeveral) {
    Trace trace = sample_trace();
    for (const bool several : {false, true}) {
        if (several)
            trace.stages_of[0].push_back(trace.stages - 1);
        for (const json& event : written(trace).at("traceEvents"))
            if (event.at("ph") == "X" && event.at("pid") == 0) {
                const json& args = event.at("args");
                const std::string name =
                    fmt::format("{}{}", args.at("op").get<std::string>(), args.at("microbatch").get<int>());
                const std::string with_stage = fmt::format("{}{}", args.at("stage").get<int>(), name);
                EXPECT_EQ(event.at("name"), several ? with_stage : name);
            }
    }
}

TEST(ChromeTrace, SlicesOfAThreadNeverOverlap) {
    // Transfers far longer than tasks: many overlap.
    const json file = written(sample_trace({.microbatches = 16, .transfer = 9'000'000}));
    std::map<std::pair<int, int>, std::vector<std::pair<Ns, Ns>>> slices;
    for (const json& event : file.at("traceEvents"))
        if (event.at("ph") == "X")
            slices[{event.at("pid"), event.at("tid")}].emplace_back(event.at("args").at("start_ns"),
                                                                    event.at("args").at("end_ns"));
    bool extra_lanes = false;
    for (auto& [thread, times] : slices) {
        extra_lanes = extra_lanes || thread.second >= 4;
        std::sort(times.begin(), times.end());
        for (std::size_t i = 1; i < times.size(); ++i)
            EXPECT_LE(times[i - 1].second, times[i].first);
    }
    EXPECT_TRUE(extra_lanes);
}

TEST(ChromeTrace, EveryThreadAndDeviceHasAName) {
    std::map<int, std::string> devices;
    std::set<std::pair<int, int>> used, named;
    const json file = written(sample_trace());
    for (const json& event : file.at("traceEvents")) {
        if (event.at("ph") == "X")
            used.emplace(event.at("pid"), event.at("tid"));
        if (event.at("ph") == "M" && event.at("name") == "thread_name")
            named.emplace(event.at("pid"), event.at("tid"));
        if (event.at("ph") == "M" && event.at("name") == "process_name")
            devices[event.at("pid")] = event.at("args").at("name");
    }
    EXPECT_EQ(used, named);
    EXPECT_EQ(devices.at(3), "device 3 (stage 3)");
}

TEST(ChromeTrace, ArrowsStartAndEndInsideTheirSlices) {
    for (const Ns transfer : {0, 1, 150'000}) {
        const json file = written(sample_trace({.transfer = transfer, .steps = 2}));
        std::map<int, std::vector<json>> arrows;
        std::vector<json> slices;
        for (const json& event : file.at("traceEvents")) {
            if (event.at("ph") == "s" || event.at("ph") == "f")
                arrows[event.at("id")].push_back(event);
            else if (event.at("ph") == "X")
                slices.push_back(event);
        }
        EXPECT_EQ(arrows.size(), 2u * 2 * 3 * 8);  // steps, directions, links, micro-batches
        const auto inside = [&](const json& arrow) {
            return std::any_of(slices.begin(), slices.end(), [&](const json& slice) {
                const double ts = arrow.at("ts"), start = slice.at("ts"), length = slice.at("dur");
                return arrow.at("pid") == slice.at("pid") && arrow.at("tid") == slice.at("tid") && start <= ts &&
                       (ts < start + length || (ts == start && length == 0));
            });
        };
        for (const auto& [id, ends] : arrows) {
            ASSERT_EQ(ends.size(), 2u);
            EXPECT_EQ(ends[0].at("ph"), "s");
            EXPECT_EQ(ends[1].at("ph"), "f");
            EXPECT_EQ(ends[0].at("name"), ends[1].at("name"));
            EXPECT_TRUE(inside(ends[0]) && inside(ends[1])) << ends[0] << ends[1];
        }
    }
}

TEST(ChromeTrace, MemoryCountersHaveOneValueForEachKind) {
    const json file = written(sample_trace());
    for (const json& event : file.at("traceEvents"))
        if (event.at("ph") == "C") {
            ASSERT_EQ(event.at("args").size(), static_cast<std::size_t>(kMemoryKinds));
            EXPECT_EQ(event.at("args").at("weights"), 40 << 20);
            EXPECT_TRUE(event.at("args").contains("stashed_weights"));
        }
}

// Malformed files

void expect_rejected(const std::string& text, const std::vector<std::string>& message) {
    const std::string path = file_in_temp("malformed.json");
    std::ofstream(path, std::ios::binary) << text;
    try {
        read_trace(path);
        FAIL() << "accepted " << text.substr(0, 200);
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::BadInput);
        for (const std::string& part : message)
            EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
}

void expect_rejected_after(const std::function<void(json&)>& change, const std::vector<std::string>& message) {
    json file = written(sample_trace({.devices = 2, .microbatches = 2}));
    change(file);
    expect_rejected(file.dump(), message);
}

json& first(json& file, const std::string& phase) {
    for (json& event : file.at("traceEvents"))
        if (event.at("ph") == phase)
            return event;
    throw std::out_of_range(phase);
}

TEST(MalformedTrace, NotJson) {
    expect_rejected("", {"not JSON"});
    expect_rejected("{\n  \"traceEvents\": [}", {"line 2, column 19"});
    expect_rejected("\xff\xfe", {"not JSON"});
    expect_rejected(std::string(200'000, '['), {"nest more than 64 deep"});
    expect_rejected("[]", {"otherData"});
    expect_rejected("[[]]", {"traceEvents[0]", "expected an object, got array"});
    expect_rejected("7", {"expected an object"});
    expect_rejected("{}", {"traceEvents"});
    expect_rejected(R"({"traceEvents":{}})", {"traceEvents", "list"});
    expect_rejected(R"({"traceEvents":[]})", {"otherData"});
    expect_rejected(R"({"traceEvents":[],"otherData":[]})", {"otherData", "object"});
    expect_rejected(R"({"traceEvents":[{"ph":"M"},3]})", {"traceEvents[1]", "object"});
    expect_rejected(R"({"traceEvents":[[]]})", {"traceEvents[0]", "object"});
    expect_rejected(R"({"traceEvents":[{}]})", {"traceEvents[0]", "'ph'"});
    expect_rejected(R"({"traceEvents":[{"ph":1e999}]})", {"not JSON"});
}

TEST(MalformedTrace, AMissingFileOrADirectory) {
    EXPECT_THROW(read_trace("/nonexistent/trace.json"), Error);
    EXPECT_THROW(read_trace(testing::TempDir()), Error);
}

TEST(MalformedTrace, EveryHeaderKeyIsNeeded) {
    const json file = written(sample_trace());
    for (const auto& item : file.at("otherData").items()) {
        const std::string& key = item.key();
        expect_rejected_after([&](json& changed) { changed["otherData"].erase(key); }, {"otherData", key});
        expect_rejected_after([&](json& changed) { changed["otherData"][key] = nullptr; }, {"otherData", key});
    }
    expect_rejected_after([](json& changed) { changed["otherData"]["schema_version"] = 2; }, {"schema_version", "2"});
    expect_rejected_after([](json& changed) { changed["otherData"]["devices"] = 2'000'000'000; }, {"stages_of"});
    expect_rejected_after([](json& changed) { changed["otherData"]["stages_of"][0][0] = 9; }, {"stages_of", "9"});
}

TEST(MalformedTrace, ReservedMemoryIsANumberOfBytesPerDevice) {
    for (const json& wrong : {json(7), json{1}, json{1, -1}, json{1, "2"}, json{1, 2, 3}})
        expect_rejected_after([&](json& changed) { changed["otherData"]["reserved_memory_bytes"] = wrong; },
                              {"otherData", "reserved_memory_bytes"});
}

TEST(MalformedTrace, EveryKeyOfAnEventIsNeededAndTyped) {
    const json file = written(sample_trace({.devices = 2, .microbatches = 2}));
    json copy = file;
    for (const auto& item : first(copy, "X").at("args").items()) {
        const std::string& key = item.key();
        expect_rejected_after([&](json& changed) { first(changed, "X")["args"].erase(key); }, {"traceEvents[", key});
        expect_rejected_after([&](json& changed) { first(changed, "X")["args"][key] = 1.5; }, {"traceEvents[", key});
        expect_rejected_after([&](json& changed) { first(changed, "X")["args"][key] = "x"; }, {"traceEvents[", key});
        expect_rejected_after([&](json& changed) { first(changed, "X")["args"][key] = -2; }, {"traceEvents[", key});
        expect_rejected_after([&](json& changed) { first(changed, "X")["args"][key] = ~std::uint64_t{0}; },
                              {"traceEvents[", key});
    }
    for (const auto& item : first(copy, "C").at("args").items()) {
        const std::string& key = item.key();
        expect_rejected_after([&](json& changed) { first(changed, "C")["args"].erase(key); }, {"traceEvents[", key});
    }
    expect_rejected_after([](json& changed) { first(changed, "C")["pid"] = 2; }, {"traceEvents[", "pid", "2 devices"});
    expect_rejected_after([](json& changed) { first(changed, "X")["args"]["device"] = 2; }, {"device", "2 devices"});
    expect_rejected_after([](json& changed) { first(changed, "X")["args"]["stage"] = 2; }, {"stage", "2 stages"});
}

TEST(MalformedTrace, NegativeDurations) {
    expect_rejected_after(
        [](json& changed) {
            first(changed, "X")["args"]["start_ns"] = 100;
            first(changed, "X")["args"]["end_ns"] = 93;
        },
        {"traceEvents[", "end_ns", "7 ns before"});
}

// Whichever byte is lost or changed, the reader either restores a trace or throws Error.
TEST(MalformedTrace, NoDamageCrashesTheReader) {
    const std::string path = file_in_temp("damaged.json");
    write_trace(sample_trace({.devices = 2, .microbatches = 1}), path);
    const std::string whole = contents(path);
    unsigned seed = 7;
    for (int i = 0; i < 400; ++i) {
        seed = seed * 1664525 + 1013904223;
        std::string text = whole;
        const std::size_t at = (seed >> 4) % whole.size();
        if (i % 2 == 0)
            text.resize(at);
        else
            text[at] = static_cast<char>(seed >> 24);
        std::ofstream(path, std::ios::binary) << text;
        try {
            read_trace(path);
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::BadInput);
        }
    }
}

// One step

TEST(OnlyStep, StartsAtZeroAndKeepsTheLengths) {
    const Trace trace = sample_trace({.steps = 3});
    const Trace one = only_step(trace, 1);
    const Trace first_step = only_step(trace, 0);
    EXPECT_EQ(one.events.size() * 3, trace.events.size());
    ASSERT_EQ(one.events.size(), first_step.events.size());
    Ns begin = one.events[0].start;
    for (std::size_t i = 0; i < one.events.size(); ++i) {
        EXPECT_EQ(one.events[i].end - one.events[i].start, first_step.events[i].end - first_step.events[i].start);
        EXPECT_EQ(one.events[i].step, 1);
        begin = std::min(begin, one.events[i].start);
    }
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(one.memory.size() * 3, trace.memory.size());
}

TEST(OnlyStep, StartsWithTheMemoryOfThePreviousStep) {
    Trace trace = sample_trace({.devices = 1, .microbatches = 1, .steps = 2});
    const Ns begin = only_step(trace, 0).events.back().end;
    std::erase_if(trace.memory, [&](const MemorySample& sample) { return sample.step == 1; });
    trace.memory.push_back({1, 0, begin + 10, MemoryUse{5}});
    const Trace one = only_step(trace, 1);
    ASSERT_EQ(one.memory.size(), 2u);
    EXPECT_EQ(one.memory[0].time, 0);
    EXPECT_EQ(one.memory[0].use[0], 40 << 20);
    EXPECT_EQ(one.memory[1], (MemorySample{1, 0, 10, MemoryUse{5}}));
}

TEST(OnlyStep, OfAMissingStepIsEmpty) { EXPECT_TRUE(only_step(sample_trace(), 5).events.empty()); }

TEST(Memory, EveryKindHasANameAndTheTotalAddsThem) {
    std::set<std::string_view> names;
    for (int kind = 0; kind < kMemoryKinds; ++kind)
        names.insert(name_of(static_cast<MemoryKind>(kind)));
    EXPECT_EQ(names.size(), static_cast<std::size_t>(kMemoryKinds));
    EXPECT_EQ(name_of(MemoryKind::StashedWeights), "stashed_weights");
    EXPECT_EQ(total({1, 2, 4, 8, 16, 32, 64, 128}), 255);
}

}  // namespace
}  // namespace pw
