// import: Chakra's binary execution traces. tests/cli/chakra/pp.*.et are written by Google's protobuf from Chakra's
// schema (bench/chakra_traces.py), converted.0.et by Chakra's own converter.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <filesystem>
#include <string>

namespace pw {

namespace {

const std::string kChakraFolder = std::string(PIPEWRIGHT_SOURCE_DIR) + "/tests/cli/chakra/";

class BinaryChakra : public Cli {
protected:
    // A message after its length, as its writers do.
    static std::string message(const std::string& text) {
        EXPECT_LT(text.size(), 128U);
        return static_cast<char>(text.size()) + text;
    }
    static std::string text_field(int field, const std::string& text) {
        return static_cast<char>(field << 3 | 2) + message(text);
    }
    static std::string number_field(int field, std::uint64_t number) {
        std::string bytes(1, static_cast<char>(field << 3));
        for (; number > 127; number >>= 7)
            bytes += static_cast<char>((number & 127) | 128);
        return bytes + static_cast<char>(number);
    }
    static std::string node(const std::string& name, std::uint64_t start, std::uint64_t duration) {
        return message(text_field(2, name) + number_field(3, 4) + number_field(6, start) + number_field(7, duration));
    }
    static std::string head() { return message(text_field(1, "1.0.0")); }
};

}  // namespace

// F 10 ms, B 20 ms, 0.5 ms for a message: the last task ends after 152 ms, by the schedule of the script.
TEST_F(BinaryChakra, TasksWithTimesAreRead) {
    const std::string files = kChakraFolder + "pp.1.et " + kChakraFolder + "pp.0.et";
    expect_says(run_well("import " + files + " -o trace.json").out,
                {"step 152.0 ms", "devices: 2, stages: 2, micro-batches: 4, steps: 1"});
    const Json report = run_well("validate trace.json --json").json();
    EXPECT_EQ(report["devices"][0]["busy_ns"], 120'000'000);
    EXPECT_EQ(report["devices"][1]["busy_ns"], 120'000'000);
    EXPECT_EQ(run_well("compare " + files + " --replay --json").json()["step_time_ns"], 152'000'000);
    expect_says(run_well("validate " + files).out, {"152.0 ms"});
    std::filesystem::create_directory(file("log"));
    for (const char* name : {"pp.0.et", "pp.1.et"})
        std::filesystem::copy(kChakraFolder + name, file("log"));
    expect_says(run_well("import log -o trace.json").out, {"step 152.0 ms"});
}

// A rank is the number in the name of its file: 10 comes after 2.
TEST_F(BinaryChakra, RanksAreInTheNamesOfFiles) {
    write("x.2.et", head() + node("F0", 5, 10) + node("B0", 36, 20));
    write("x.10.et", head() + node("F0", 15, 10) + node("B0", 25, 11));
    run_well("import x.10.et x.2.et -o trace.json");
    const Json events = Json::parse(read("trace.json"))["traceEvents"];
    int found = 0;
    for (const Json& event : events)
        if (event["ph"] == "X" && event["args"]["stage"] == 0) {
            ++found;
            EXPECT_EQ(event["args"]["end_ns"].get<int>() - event["args"]["start_ns"].get<int>(),
                      event["args"]["op"] == "F" ? 10'000 : 20'000);
        }
    EXPECT_EQ(found, 2);
}

TEST_F(BinaryChakra, FilesOfTheConverterHaveNoStarts) {
    expect_says(error_of("import " + kChakraFolder + "converted.0.et -o trace.json", 2),
                {"its nodes have durations, but no times at which they start", "chakra_converter",
                 "the JSON files that chakra_trace_link writes"});
}

TEST_F(BinaryChakra, WhatIsNoTaskIsNamed) {
    write("x.0.et", head() + node("aten::mm", 5, 10) + node("aten::add", 25, 10));
    expect_says(error_of("import x.0.et -o trace.json", 2),
                {"none of its nodes is a task of a pipeline", "'aten::mm', 'aten::add'"});
    write("x.0.et", head() + node("my forward 0", 5, 10) + node("my backward 0", 25, 10));
    expect_says(run_well("import x.0.et -o trace.json --task 'F=my forward {mb}' --task 'B=my backward {mb}'").out,
                {"devices: 1, stages: 1, micro-batches: 1"});
}

TEST_F(BinaryChakra, DamagedFilesAreRefusedWithTheirPlace) {
    const std::string whole = head() + node("F0", 5, 10) + node("B0", 25, 10);
    write("x.0.et", whole.substr(0, whole.size() - 1));
    expect_says(error_of("import x.0.et -o trace.json", 2), {"byte 19: the file ends within a message"});
    write("x.0.et", head() + node("F0", 5, 10) + message(number_field(2, 7)));
    expect_says(error_of("import x.0.et -o trace.json", 2), {"byte 19: this message is no Node"});
    write("x.0.et", head() + node("F0", std::uint64_t{1} << 60, 10) + node("B0", 25, 10));
    expect_says(error_of("import x.0.et -o trace.json", 2), {"byte 8: the node 'F0' has a time of more than"});
    write("x.0.et", head());
    expect_says(error_of("import x.0.et -o trace.json", 2), {"none of its nodes is a task"});
}

// The first bytes of a file may look like blanks: a length of 10, and the tag of the version.
TEST_F(BinaryChakra, ALengthMayLookLikeALineBreak) {
    write("x.0.et", message(text_field(1, "1.0.0-rc")) + node("F0", 5, 10) + node("B0", 25, 10));
    EXPECT_EQ(read("x.0.et").substr(0, 2), "\n\n");
    expect_says(run_well("import x.0.et -o trace.json").out, {"devices: 1, stages: 1, micro-batches: 1"});
}

}  // namespace pw
