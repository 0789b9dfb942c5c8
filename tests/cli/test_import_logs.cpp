// import: what Primus, Varuna and Megatron-LM write of their tasks.
#include "tests/support/cli_rig.h"
#include "tests/support/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace pw {

namespace {

class ImportLogs : public Cli {
protected:
    // Two micro-batches on two ranks, F 10 ms, B 20 ms: 0F0 0F1, 1F0 1B0 1F1 1B1, 0B0 0B1, 90 ms. In the first
    // iteration the clock of rank 1 begins `late` ms after that of rank 0.
    void write_primus(int late = 0) const {
        for (const int rank : {0, 1}) {
            Json iterations;
            for (const int step : {1, 2}) {
                const int off = rank == 1 && step == 1 ? late : 0;
                Json& one = iterations[fmt::format("{}", step)];
                one = {{"total", 90.0}, {"memory", 1.5}, {"wgrad_start", Json::array()}, {"wgrad_end", Json::array()}};
                const auto add = [&](const char* pass, int first, int second, int duration) {
                    for (const int begin : {first - off, second - off}) {
                        one[fmt::format("{}_start", pass)].push_back(begin + 0.0);
                        one[fmt::format("{}_end", pass)].push_back(begin + duration + 0.0);
                    }
                };
                add("fwd", rank == 0 ? 0 : 10, rank == 0 ? 10 : 40, 10);
                add("bwd", rank == 0 ? 40 : 20, rank == 0 ? 70 : 50, 20);
            }
            write(fmt::format("pp_rank_{}.json", rank), iterations.dump(2));
        }
    }
    Json primus(int rank) const { return Json::parse(read(fmt::format("pp_rank_{}.json", rank))); }
    Json valid(const std::string& files) const { return run_well("validate --json " + files).json(); }

    static std::string replaced(std::string text, std::string_view part, std::string_view by) {
        text.replace(text.find(part), part.size(), by);
        return text;
    }
};

constexpr const char* kFirstStage =
    "start time 100.0\n"
    "embedcomm 0 100.0 0.5\n"
    "recvacts 0 100.0 7.15e-07\n"
    "fwd 0 100.0 0.010\n"
    "fwd 0 100.010 0.010\n"
    "rec 0 100.030 0.010\n"
    "recvgrads 0 100.04 0\n"
    "bwd 0 100.040 0.020\n"
    "rec 0 100.060 0.010\n"
    "bwd 0 100.070 0.020\n"
    "SYNC! all_reduce 423019800 100.09 8.41\n"
    "\n"
    "BATCH END 100.0 0.1\n"
    "\n"
    "start time 101.0\n"
    "fwd 0 101.0 0.010\n";
constexpr const char* kSecondStage =
    "start time 100.0\n"
    "recvacts 0 100.0 0.01\n"
    "fwd 0 100.010 0.010\n"
    "bwd 0 100.020 0.020\n"
    "fwd 0 100.040 0.010\n"
    "bwd 0 100.050 0.020\n"
    "BATCH END 100.0 0.1\n";

// Four ranks, two of each stage; two micro-batches: 8 / (2 x 2).
constexpr const char* kTimers =
    "------------------------ arguments ------------------------\n"
    "  data_parallel_size .............................. 2\n"
    "  global_batch_size ............................... 8\n"
    "  micro_batch_size ................................ 2\n"
    "  pipeline_model_parallel_size .................... 2\n"
    "  virtual_pipeline_model_parallel_size ............ None\n"
    "  world_size ...................................... 4\n"
    "-------------------- end of arguments ---------------------\n"
    "[default0]: [2026-01-01 00:00:00] iteration 1/ 10 | elapsed time per iteration (ms): 95.0 |\n"
    "[default0]:times across ranks (ms):\n"
    "[default0]:  forward-backward:\n"
    "[default0]:     rank  0: 92.00\n"
    "[default0]:     rank  3: 93.00\n"
    "[default0]:  forward-compute:\n"
    "[default0]:     rank  0: 19.00\n"
    "[default0]:     rank  1: 21.00\n"
    "[default0]:     rank  2: 20.00\n"
    "[default0]:     rank  3: 20.00\n"
    "[default0]:  backward-compute:\n"
    "[default0]:     rank  0: 40.00\n"
    "[default0]:     rank  1: 40.00\n"
    "[default0]:     rank  2: 60.00\n"
    "[default0]:     rank  3: 60.00\n"
    "[default0]:  optimizer:\n"
    "[default0]:     rank  0: 3.00\n";

}  // namespace

TEST_F(ImportLogs, PrimusHasAFileForEachRank) {
    write_primus();
    const Said said = run_well("import pp_rank_1.json pp_rank_0.json -o trace.json");
    EXPECT_EQ(said.err, "note: the order of the tasks bounds the clocks, against rank 0: rank 1 -0 ns to +0 ns\n");
    expect_says(said.out, {"step 90.00 ms", "devices: 2, stages: 2, micro-batches: 2, steps: 2"});
    const Json json = valid("trace.json");
    EXPECT_EQ(json["step_time_ns"], 90'000'000);
    EXPECT_EQ(json["devices"][1]["busy_ns"], 60'000'000);
    run_well("plot pp_rank_0.json pp_rank_1.json -o x.txt");
}

// 1F0 begins at 0 on its clock, and 0F0 ends at 10.
TEST_F(ImportLogs, ClocksOfPrimusAreAlignedInEveryIteration) {
    write_primus(10);
    const Said said = run_well("import pp_rank_0.json pp_rank_1.json -o trace.json");
    expect_says(said.err, {"note: clocks differ", "rank 1 10.00 ms"});
    run_well("plot trace.json --step 0 -o first.json");
    run_well("plot trace.json --step 1 -o second.json");
    EXPECT_EQ(valid("first.json")["step_time_ns"], 90'000'000);
    EXPECT_EQ(valid("second.json")["step_time_ns"], 90'000'000);
}

// Two stages on each rank take turns; a backward with a wgrad makes the gradients of the inputs alone.
TEST_F(ImportLogs, PrimusNamesChunksAndWeightGradients) {
    for (const int rank : {0, 1}) {
        Json one;
        for (const char* pass : {"fwd", "bwd", "wgrad"})
            for (int k = 0; k < 4; ++k) {
                const int phase = pass[0] == 'f' ? 0 : pass[0] == 'b' ? 100 : 110;
                const int chunk = pass[0] == 'f' ? k / 2 : 1 - k / 2;
                const bool later = pass[0] == 'f' ? rank == 1 : rank == 0;
                const double start = phase + 20 * k + (later ? 5 : 0);
                one[fmt::format("{}_start", pass)].push_back(start);
                one[fmt::format("{}_end", pass)].push_back(start + 5);
                one[fmt::format("{}_minibatch", pass)].push_back(k % 2);
                one[fmt::format("{}_chunk", pass)].push_back(chunk);
            }
        write(fmt::format("pp_rank_{}.json", rank), Json{{"7", one}}.dump());
    }
    expect_says(run_well("import pp_rank_0.json pp_rank_1.json -o trace.json").out,
                {"devices: 2, stages: 4, micro-batches: 2, steps: 1"});
    const std::string named = run_well("validate trace.json --json").out;
    run_well("plot trace.json -o x.txt");
    expect_says(read("x.txt"), {"stage 0, 2", "stage 1, 3", "backward (weights)"});
    for (const int rank : {0, 1}) {  // the same without lists of chunks, as Megatron's own schedules are dumped
        Json file = Json::parse(read(fmt::format("pp_rank_{}.json", rank)));
        for (const char* pass : {"fwd", "bwd", "wgrad"})
            for (const char* list : {"minibatch", "chunk"})
                file["7"][fmt::format("{}_{}", pass, list)] = Json::array();
        write(fmt::format("pp_rank_{}.json", rank), file.dump());
    }
    write("config.json", R"({"pp_size": 2, "vp_size": 2, "num_mbs": 2})");
    run_well("import pp_rank_0.json pp_rank_1.json -o trace.json");
    EXPECT_EQ(run_well("validate trace.json --json").out, named);
}

TEST_F(ImportLogs, MistakesInFilesOfPrimusAreNamed) {
    write_primus();
    Json file = primus(1);
    file["2"]["fwd_end"].erase(1);
    write("pp_rank_1.json", file.dump());
    expect_says(error_of("import pp_rank_0.json pp_rank_1.json -o x.json", 2),
                {"trace 'pp_rank_1.json': file.2.fwd_end: 1 values, but 2 tasks start"});
    file["2"]["fwd_end"] = {1.0, "x"};
    write("pp_rank_1.json", file.dump());
    expect_says(error_of("import pp_rank_0.json pp_rank_1.json -o x.json", 2),
                {"file.2.fwd_end: number 0 ends 9.000 ms before it starts"});
    write_primus();
    expect_says(error_of("import pp_rank_0.json pp_rank_0.json -o x.json", 2), {"both of rank 0"});
    write("other.json", read("pp_rank_1.json"));
    expect_says(error_of("import pp_rank_0.json other.json -o x.json", 2),
                {"trace 'other.json'", "its name does not say which rank", "pp_rank_0.json"});
    expect_says(error_of("import pp_rank_1.json -o x.json", 2), {"no file has a task of stage 0"});
}

// 0R0 begins at 30 and 0B0 ends at 60; the step that did not end is left out.
TEST_F(ImportLogs, VarunaHasALogForEachStage) {
    write("varuna_logs-mBS2-stage0of2", kFirstStage);
    write("varuna_logs-mBS2-stage1of2", kSecondStage);
    const Said said = run_well("import varuna_logs-mBS2-stage1of2 varuna_logs-mBS2-stage0of2 -o trace.json");
    expect_says(said.err, {"note: the order of the tasks bounds the clocks, against rank 0: rank 1 -"});
    EXPECT_EQ(std::count(said.err.begin(), said.err.end(), '\n'), 1) << said.err;
    expect_says(said.out, {"step 90.00 ms", "devices: 2, stages: 2, micro-batches: 2, steps: 1"});
    const Json json = valid("trace.json");
    EXPECT_NEAR(json["step_time_ns"].get<double>(), 90e6, 100);  // such seconds are exact to 100 ns or so
    EXPECT_EQ(json["tasks"], 10);
    EXPECT_NEAR(json["devices"][0]["busy_ns"].get<double>(), 80e6, 100);
    EXPECT_NEAR(json["devices"][1]["busy_ns"].get<double>(), 60e6, 100);
}

TEST_F(ImportLogs, MistakesInLogsOfVarunaAreNamed) {
    write("log-stage0of2", kFirstStage);
    write("log-stage1of2", replaced(kSecondStage, "bwd 0 100.020 0.020", "bwd 0 100.020"));
    expect_says(error_of("import log-stage0of2 log-stage1of2 -o x.json", 2),
                {"trace 'log-stage1of2', line 4", "the duration in seconds", "bwd 0 100.020", "help"});
    expect_says(error_of("import log-stage0of2 -o x.json", 2), {"is of stage 0 of 2, and 1 files are named", "help"});
    write("log", kSecondStage);
    expect_says(error_of("import log-stage0of2 log -o x.json", 2), {"'log'", "its name does not say which stage"});
}

// A forward takes 10 ms on both stages, a backward 20 and 30: 0F0 1F0 1B0 1F1 1B1 0B1 = 10 + 10 + 30 + 10 + 30 + 20.
// A line as in Paddle's documents, for 90 ms as above, in milliseconds from 1970 on.
TEST_F(ImportLogs, PaddleHasALogForEachDevice) {
    const auto job = [](const char* type, int micro_batch, double start, double duration) {
        return fmt::format(
            "I1020 09:15:07.265326 22317 standalone_executor.cc:217] Profiler Info: Job (3), type = {}, micro_batch_id "
            "= "
            "{}, job_start_time = {:.6f}, job_end_time = {:.6f}\n",
            type, micro_batch, 1'697'793'307'000 + start, 1'697'793'307'000 + start + duration);
    };
    const auto log = [&](int rank, int steps) {
        std::string text = "W1020 some other line\n";
        for (int step = 0; step < steps; ++step) {
            const double at = 100.0 * step;
            text += job("lr", 0, at, 1) + job("forward", 0, at + (rank == 0 ? 0 : 10), 10) +
                    job("backward", 0, at + (rank == 0 ? 40 : 20), 20) +
                    job("forward", 1, at + (rank == 0 ? 10 : 40), 10) +
                    job("backward", 1, at + (rank == 0 ? 70 : 50), 20) + job("optimizer", 0, at + 90, 5);
        }
        return text;
    };
    for (const int rank : {0, 1})
        write(fmt::format("workerlog.{}", rank), log(rank, 3));
    expect_says(run_well("import workerlog.1 workerlog.0 -o trace.json").out,
                {"step 90.00 ms", "bubble 33.3 %", "devices: 2, stages: 2, micro-batches: 2, steps: 3"});
    write("workerlog.1", job("forward", 0, 5, -1));
    expect_says(error_of("import workerlog.0 workerlog.1 -o trace.json", 2),
                {"workerlog.1', line 1", "expected a micro-batch, and a beginning and an end in milliseconds"});
    write("workerlog.1", job("lr", 0, 5, 1));
    expect_says(error_of("import workerlog.0 workerlog.1 -o trace.json", 2),
                {"workerlog.1': none of its jobs is a forward or a backward", "enable_job_schedule_profiler"});
}

// Chunks c of two devices are stages 2 c and 2 c + 1.
TEST_F(ImportLogs, PaddleNumbersChunks) {
    const auto job = [](const char* type, int start) {
        return fmt::format(
            "Profiler Info: Job (0), type = {}, micro_batch_id = 0, job_start_time = {}.0, job_end_time = "
            "{}.0\n",
            type, start, start + 1);
    };
    write("workerlog.0", job("forward0", 0) + job("forward1", 2) + job("backward_b1", 5) + job("backward_w1", 6) +
                             job("backward_b0", 7) + job("backward_w0", 8));
    write("workerlog.1", job("forward0", 1) + job("forward1", 3) + job("backward_b1", 4) + job("backward_w1", 5) +
                             job("backward_b0", 6) + job("backward_w0", 7));
    expect_says(run_well("import workerlog.0 workerlog.1 -o trace.json").out,
                {"step 9.000 ms", "devices: 2, stages: 4"});
}

TEST_F(ImportLogs, TimersOfMegatronHaveMeansOfStages) {
    write("train.log", kTimers);
    const Said said = run_well("import train.log -o trace.json");
    expect_says(said.err, {"note: the log has sums over a step", "in the order of 1f1b", "not measured",
                           "its last forward-backward took 93.00 ms"});
    const Json json = valid("trace.json");
    EXPECT_EQ(json["step_time_ns"], 110'000'000);
    EXPECT_EQ(json["devices"][0]["busy_ns"], 60'000'000);
    EXPECT_EQ(json["devices"][1]["busy_ns"], 80'000'000);
    write("twice.log", replaced(kTimers, "... None", "... 2"));
    expect_says(run_well("import twice.log -o trace.json").out, {"devices: 2, stages: 4, micro-batches: 2"});
    EXPECT_EQ(valid("trace.json")["devices"][1]["busy_ns"], 80'000'000);
}

TEST_F(ImportLogs, MistakesInTimersAreNamed) {
    const std::string arguments = std::string(kTimers).substr(0, std::string_view(kTimers).find("[default0]"));
    write("minmax.log",
          arguments + "(min, max) time across ranks (ms):\n    forward-compute ........: (19.00, 21.00)\n");
    expect_says(error_of("import minmax.log -o x.json", 2),
                {"least and the most over the ranks", "--timing-log-option all"});
    write("none.log", arguments);
    expect_says(error_of("import none.log -o x.json", 2), {"no times across ranks", "--timing-log-level 2"});
    write("cut.log", std::string(kTimers).substr(arguments.size()));
    expect_says(error_of("import cut.log -o x.json", 2), {"have no pipeline_model_parallel_size", "the whole log"});
    write("odd.log", replaced(kTimers, "... 8", "... 6"));
    expect_says(error_of("import odd.log -o x.json", 2), {"global_batch_size 6 is not a multiple"});
    write("rank.log", replaced(kTimers, "rank  1: 21.00", "rank  1: fast"));
    expect_says(error_of("import rank.log -o x.json", 2), {"trace 'rank.log', line 16", "rank N: milliseconds"});
    write("missing.log", replaced(kTimers, "backward-compute:", "backward-send:"));
    expect_says(error_of("import missing.log -o x.json", 2), {"number 1 have no backward-compute of ranks 0 to 1"});
}

}  // namespace pw
