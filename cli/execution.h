// What the commands that measure share: run, launch, compare and profile.
#pragma once

#include "cli/command.h"
#include "report/notes.h"
#include "report/report.h"
#include "exec/execute.h"
#include "exec/measuring/interleaved.h"
#include "workloads/error.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw {

// What run is asked for, and launch for it.
struct RunArguments {
    ConfigArguments config;
    std::string trace, resume, checkpoints, dump, save, losses;
    int steps = 0, checkpoint_every = 0, keep = 2;
    bool reference = false, json = false;
    bool say_started = false;  // rank 0 writes kStartedLine first: `launch` asks for it

    Config load() const;  // with so many steps
};
inline constexpr const char* kSayStarted = "--say-started";
inline constexpr std::string_view kStartedLine = "pipewright run has started";
void add_run_options(CLI::App& command, RunArguments& arguments);
void check_targets(const RunArguments& arguments);  // before a training of hours
// Returns "\n  help: go on with --resume DIR" where the folder has something to go on from. It may be empty: no folder.
std::string way_on(const std::string& checkpoints);
bool is_same_place(const std::string& folder, const std::string& other);

// Both show a progress line on a terminal; what disturbed the measurement is said on stderr.
Profile measure_with_progress(const Config& config, const Model& model, const std::vector<int>& sizes);
// An asynchronous job with checkpoints on its way runs in pieces. With `reference` the job's oracle does.
RunResult execute(const Job& job, RunOptions options, bool reference = false);
InterleavedRun interleave(const Job& job, int turns);

// Returns how many samples had been learnt from after each of the first updates.
std::vector<double> samples_after(const Job& job, std::size_t updates);

// Make the measured report, and its JSON with what only executions have: losses, gradient_norms, weights_hash.
Report report_of(const RunResult& result, const Config& config);
Json json_of(const RunResult& result, const Report& report);
std::string print_learning(const RunResult& result);  // "loss 2.3026 to 2.1034 in 20 updates   weights ..."

// A failure of one of several ranks: it tells which stages that has, "stage 2" or "stages 2, 3".
class ErrorOfRank : public Error {
public:
    ErrorOfRank(const Error& error, std::string stages) : Error(error), stages_(std::move(stages)) {}
    const std::string& stages() const { return stages_; }

private:
    std::string stages_;
};

}  // namespace pw
