// import: folders with a file for each rank, and execution traces.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

#include <string>

namespace pw {

namespace {

class TraceFolders : public Cli {
protected:
    void SetUp() override {
        Cli::SetUp();
        std::filesystem::create_directory(file("log"));
    }
    // A rank of two: F 10 ms, B 20 ms, one micro-batch, 60 ms in all.
    static Json rank_file(int rank, int duration = 10) {
        Json events = Json::array();
        const auto add = [&](const char* name, int start, int length) {
            events.push_back({{"ph", "X"},
                              {"cat", "user_annotation"},
                              {"name", fmt::format("PP:{}{}", rank, name)},
                              {"tid", 1},
                              {"ts", start * 1000},
                              {"dur", length * 1000}});
        };
        add("F0", rank == 0 ? 0 : 10, duration);
        add("B0", rank == 0 ? 40 : 20, 20);
        return {{"distributedInfo", {{"rank", rank}, {"world_size", 2}}}, {"traceEvents", events}};
    }
    // A node of an execution trace.
    static Json node(const char* name, int start, int duration) {
        return {{"id", 1}, {"name", name}, {"ctrl_deps", 0}, {"ts", start}, {"inclusive_dur", duration}};
    }
};

}  // namespace

// tensorboard_trace_handler writes a file for each worker and cycle.
TEST_F(TraceFolders, TheLastCycleOfTensorBoardCounts) {
    for (const int rank : {0, 1}) {
        write(fmt::format("log/node_{}.1796047326748547657.pt.trace.json", 70 + rank), rank_file(rank, 7).dump());
        write(fmt::format("log/node_{}.1796047331418475973.pt.trace.json", 70 + rank), rank_file(rank).dump());
    }
    write("log/notes.json", "{}");
    const Said said = run_well("import log -o trace.json");
    expect_says(said.err, {"note: log has 4 files of 2 workers: the last file of each worker is read"});
    expect_says(said.out, {"step 60.00 ms", "devices: 2, stages: 2, micro-batches: 1"});
    const Json valid = run_well("validate trace.json --json").json();
    EXPECT_EQ(valid["devices"][0]["busy_ns"], 30'000'000);
}

TEST_F(TraceFolders, FilesOfAllRanksAreRead) {
    for (const int rank : {0, 1})
        write(fmt::format("log/rank{}.json", rank), rank_file(rank).dump());
    expect_says(run_well("import log -o trace.json").out, {"step 60.00 ms"});
    std::filesystem::create_directory(file("none"));
    expect_says(error_of("import none -o trace.json", 2), {"'none' is a folder without traces", "*.pt.trace.json"});
}

// 0F 0..10, 1F 10..20, 1B 20..40, 0B 40..60. Tensors are left out.
TEST_F(TraceFolders, ExecutionTracesWithTimesAreRead) {
    const auto trace = [](const Json& nodes) { return Json{{"schema", "1.1.1-chakra.0.0.4"}, {"nodes", nodes}}; };
    Json first = {node("PP:0F0", 0, 10'000), node("aten::mm", 0, 9'000), node("PP:0B0", 40'000, 20'000)};
    first[1]["inputs"] = {{"values", {1, 2}}};
    write("rank0.json", trace(first).dump());
    write("rank1.json", trace({node("PP:1F0", 10'000, 10'000), node("PP:1B0", 20'000, 20'000)}).dump());
    expect_says(run_well("import rank0.json rank1.json -o trace.json").out,
                {"step 60.00 ms", "devices: 2, stages: 2, micro-batches: 1, steps: 1"});
    first[0].erase("ts");
    write("rank0.json", trace(first).dump());
    expect_says(error_of("import rank0.json rank1.json -o trace.json", 2),
                {"nodes[0] is the task 'PP:0F0' without times", "chakra_trace_link"});
    write("rank0.json", trace(Json::array({node("aten::mm", 0, 1)})).dump());
    expect_says(error_of("import rank0.json rank1.json -o trace.json", 2),
                {"none of its nodes is a task of a pipeline", "it has events 'aten::mm'"});
}

}  // namespace pw
