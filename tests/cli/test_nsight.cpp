// import: ranges of NVTX from Nsight Systems, in tables and in databases.
#include "tests/support/cli_rig.h"
#include "tests/support/public_data.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <functional>
#include <string>

namespace pw {

namespace {

// Two micro-batches on two devices, F 10 ms, B 20 ms, without time between: 90 ms, of which each device computes 60.
struct NvtxSlice {
    int device;
    bool forward;
    int microbatch, start;
    int duration() const { return forward ? 10 : 20; }
    std::string name() const { return fmt::format("{}_mb{}_stage{}", forward ? "fwd" : "bwd", microbatch, device); }
};
constexpr NvtxSlice kNvtxSlices[] = {{0, true, 0, 0},  {0, true, 1, 10},  {0, false, 0, 40}, {0, false, 1, 70},
                                     {1, true, 0, 10}, {1, false, 0, 20}, {1, true, 1, 40},  {1, false, 1, 50}};

constexpr const char* kHostNote = "note: times are the host's";

class Nsight : public Cli {
protected:
    void expect_step(const std::string& files, const std::string& options = "") const {
        const Said said = run_well("import " + files + " -o trace.json" + options);
        expect_says(said.out, {"step 90.00 ms", "bubble 33.3 %", "devices: 2, stages: 2, micro-batches: 2, steps: 1"});
    }
    using Row = std::function<std::string(const NvtxSlice&)>;
    void write_table(const std::string& name, const std::string& head, const Row& row, int device = -1) const {
        std::string text = head + "\n";
        for (const NvtxSlice& slice : kNvtxSlices)
            if (device < 0 || slice.device == device)
                text += row(slice) + "\n";
        write(name, text);
    }
};

// A database as nsys exports it.
class NsysExport {
public:
    explicit NsysExport(const std::filesystem::path& path) {
        EXPECT_EQ(sqlite3_open(path.c_str(), &database_), SQLITE_OK);
        sql("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)");
    }
    ~NsysExport() { sqlite3_close(database_); }

    void sql(const std::string& text) const {
        char* error = nullptr;
        EXPECT_EQ(sqlite3_exec(database_, text.c_str(), nullptr, nullptr, &error), SQLITE_OK) << (error ? error : "");
    }
    void ranges() const {
        sql("CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER, text TEXT, globalTid "
            "INTEGER, textId INTEGER)");
    }
    void kernels() const {
        sql("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId "
            "INTEGER, nameId INTEGER)");
        sql("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
            "correlationId INTEGER, globalPid INTEGER, demangledName INTEGER)");
        sql("INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'ncclDevKernel_SendRecv')");
    }
    static std::int64_t process(int device) { return (std::int64_t{7} << 56) + ((100 + device) * kIds); }

    void range(const NvtxSlice& slice, std::int64_t start, std::int64_t end, int text_id = 0) const {
        sql(fmt::format("INSERT INTO NVTX_EVENTS VALUES ({}, {}, 59, {}, {}, {})", start, end,
                        text_id == 0 ? "'" + slice.name() + "'" : "NULL", process(slice.device) + 5,
                        text_id == 0 ? "NULL" : std::to_string(text_id)));
    }
    // A kernel that a thread of the device's process launches.
    void kernel(int device, int id, std::int64_t launched, std::int64_t start, std::int64_t end, int name = 1) const {
        sql(fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({}, {}, {}, {}, 9)", launched, launched + 100,
                        process(device) + 6, id));
        sql(fmt::format("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({}, {}, 0, 7, {}, {}, {})", start, end, id,
                        process(device), name));
    }

private:
    static constexpr std::int64_t kIds = 1 << 24;
    sqlite3* database_ = nullptr;
};

constexpr std::int64_t kNvtxMs = 1'000'000;

}  // namespace

// The columns of nvtx_pushpop_trace. nsys writes messages before them, and quotes a name with a comma.
TEST_F(Nsight, RangesOfTheHostAreTasks) {
    const std::string head =
        "Processing [x.sqlite] with [nvtx_pushpop_trace.py]...\n\n"
        "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl,NumChild";
    write_table("ranges.csv", head, [](const NvtxSlice& slice) {
        const int start = slice.start, end = start + slice.duration();
        return fmt::format(
            "{}000000,{}000000,{}000000,0,0,:{},{},{},0,0\r\n{}000000,{}000001,1,0,0,\"NCCL:a, \"\"b\"\"\",1,1,1,0",
            start, end, slice.duration(), slice.name(), 100 + slice.device, 7, start, start);
    });
    expect_step("ranges.csv");
    expect_says(run_well("import ranges.csv -o trace.json").err, {kHostNote, "nvtx_gpu_proj_trace"});
    run_well("plot ranges.csv -o x.txt");
    EXPECT_EQ(run_well("compare ranges.csv --replay --json").json()["replayed_ns"], 90'000'000);
}

// The report nvtx_gpu_proj_trace in microseconds, with a file for each process.
TEST_F(Nsight, ProjectionsAreTheTimesOfTheGpu) {
    const char* head =
        "Name,Projected Start (us),Projected Duration (us),Orig Start (us),Orig Duration (us),Style,PID,TID";
    for (const int device : {0, 1})
        write_table(
            fmt::format("node{}.csv", device), head,
            [](const NvtxSlice& slice) {
                return fmt::format("pipeline:{},{}000.000,{}000.000,1.5,2.5,PushPop,{},{}", slice.name(), slice.start,
                                   slice.duration(), 100, 7);
            },
            device);
    expect_step("node1.csv node0.csv");
    const std::string notes = run_well("import node0.csv node1.csv -o trace.json").err;
    EXPECT_EQ(notes.find(kHostNote), std::string::npos) << notes;
    expect_says(notes, {"rank 1 -0 ns to +0 ns"});  // no time between its tasks and their inputs
}

// Columns of the host are left out wherever they are.
TEST_F(Nsight, ColumnsOfTheGpuComeBeforeColumnsOfTheHost) {
    write_table("x.csv",
                "Start (ns),End (ns),Name,PID,Projected Start (ms),Projected Duration (ms),Duration (ns),Domain",
                [](const NvtxSlice& slice) {
                    return fmt::format("1,2,{},{},{},{},3,", slice.name(), slice.device, slice.start, slice.duration());
                });
    expect_step("x.csv");
    EXPECT_EQ(run_well("import x.csv -o trace.json").err, "");
}

TEST_F(Nsight, ThePublicTableIsRead) {
    PIPEWRIGHT_NEED_DATA(table, "field/32-nsight-nvtx/nvtx_pushpop_trace.csv");
    const Json json = run_well("compare --replay --explain --json " + table).json();
    EXPECT_EQ(json["step_time_ns"], 372'000'000);
    EXPECT_EQ(json["replayed_ns"], 372'000'000);
    EXPECT_EQ(json["explanation"]["slowest_stage"], 2);
}

TEST_F(Nsight, MistakesInTablesAreNamed) {
    const auto error = [&](const std::string& text, const std::string& options = "") {
        write("ranges.csv", text);
        return error_of("import ranges.csv -o trace.json" + options, 2);
    };
    const std::string head = "Start (ns),End (ns),Name,PID\n";
    expect_says(error(head + "0,1,conv,1\n0,1,loss,1\n0,1,adam,1\n"),
                {"none of its ranges is a task", "it has ranges 'conv', 'loss', 'adam'"});
    expect_says(error(head + "0,1,fwd 0,1\n1\n"), {"ranges.csv', line 3", "expected 3 cells or more, got 1"});
    expect_says(error(head + "0,x,fwd 0,1\n"), {"line 2", "expected a time, got 'x'"});
    expect_says(error(head + "5,4,fwd 0,1\n"), {"line 2", "ends before it begins"});
    expect_says(error(head + "0,1,conv,1\n0,1,loss,1\n", " --task 'conv{mb}'"), {"does not say which operation"});
    expect_says(error(head + "0,1,conv,1\n0,1,loss,1\n", " --task 'F=conv{mb}'"),
                {"no name matches the pattern 'F=conv{mb}'", "no pattern matches: 'conv', 'loss'"});
    expect_says(error("Time (%),Total Time (ns),Instances,Name\n1,2,3,gemm\n"),
                {"is a file of Nsight Systems without a table of ranges", "--report nvtx_gpu_proj_trace"});
    write("x.nsys-rep", "binary");
    expect_says(error_of("import x.nsys-rep -o trace.json", 2), {"Nsight Systems", "nsys stats --report"});
}

// The host is far ahead of its GPU, backwards launch on another thread, and kernels of NCCL wait.
TEST_F(Nsight, KernelsGiveTheTimesOfADatabase) {
    {
        const NsysExport database(file("x.sqlite"));
        database.ranges();
        database.kernels();
        int id = 0;
        for (const NvtxSlice& slice : kNvtxSlices) {
            const std::int64_t launch = ++id * kNvtxMs, start = slice.start * kNvtxMs,
                               end = start + slice.duration() * kNvtxMs;
            database.sql(fmt::format("INSERT INTO StringIds VALUES ({}, '{}')", 10 + id, slice.name()));
            database.range(slice, launch, launch + kNvtxMs / 2, 10 + id);
            database.kernel(slice.device, 3 * id, launch + 10, start, start + kNvtxMs);
            database.kernel(slice.device, 3 * id + 1, launch + 20, start + 2 * kNvtxMs, end);
            database.kernel(slice.device, 3 * id + 2, launch + 30, end, end + 30 * kNvtxMs, 2);
        }
        database.sql("INSERT INTO NVTX_EVENTS VALUES (0, NULL, 34, 'a mark', 5, NULL)");
        database.sql("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)");
        database.sql("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('CpuCores', '8'), ('Hostname', 'n17')");
    }
    expect_step("x.sqlite");
    EXPECT_EQ(run_well("import x.sqlite -o trace.json").err, "");
    EXPECT_EQ(Json::parse(read("trace.json"))["otherData"]["hosts"], (Json{"n17", "n17"}));
    run_well("plot x.sqlite -o x.txt");
}

TEST_F(Nsight, RangesGiveTheTimesOfADatabaseWithoutKernels) {
    {
        const NsysExport database(file("x.sqlite"));
        database.ranges();
        for (const NvtxSlice& slice : kNvtxSlices)
            database.range(slice, slice.start * kNvtxMs, (slice.start + slice.duration()) * kNvtxMs);
    }
    expect_step("x.sqlite");
    expect_says(run_well("import x.sqlite -o trace.json").err, {kHostNote});
    expect_step("x.sqlite", " --task '{op}_mb{mb}_stage{stage}'");
    expect_says(
        error_of("import x.sqlite -o trace.json --task 'layer{mb}_fwd'", 2),
        {"no name matches the pattern 'layer{mb}_fwd'", "'fwd_mb0_stage0', 'fwd_mb1_stage0', 'bwd_mb0_stage0'"});
}

// Sessions of two nodes begin at different times by UTC, and each database counts from its own.
TEST_F(Nsight, SessionsOfDatabasesAreOnOneClock) {
    for (const int device : {0, 1}) {
        const NsysExport database(file(fmt::format("node{}.sqlite", device)));
        database.ranges();
        database.sql("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT)");
        database.sql(fmt::format("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ({}, '')",
                                 1'700'000'000'000'000'000 - device * 5 * kNvtxMs));
        for (const NvtxSlice& slice : kNvtxSlices)
            if (slice.device == device)
                database.range(slice, (slice.start + 5 * device) * kNvtxMs,
                               (slice.start + 5 * device + slice.duration()) * kNvtxMs);
    }
    expect_step("node0.sqlite node1.sqlite");
    const std::string notes = run_well("import node0.sqlite node1.sqlite -o trace.json").err;
    EXPECT_EQ(notes.find("clocks differ"), std::string::npos) << notes;
}

TEST_F(Nsight, MistakesInDatabasesAreNamed) {
    { const NsysExport database(file("none.sqlite")); }
    expect_says(error_of("import none.sqlite -o trace.json", 2), {"no table NVTX_EVENTS", "--trace=cuda,nvtx"});
    write("cut.sqlite", read("none.sqlite").substr(0, 600));
    expect_says(error_of("import cut.sqlite -o trace.json", 2), {"not a database of Nsight Systems"});
    {
        const NsysExport database(file("late.sqlite"));
        database.ranges();
        database.range(kNvtxSlices[0], 5, 4);
    }
    expect_says(error_of("import late.sqlite -o trace.json", 2), {"the range 'fwd_mb0_stage0' ends before it begins"});
}

}  // namespace pw
