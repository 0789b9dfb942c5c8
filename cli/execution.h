// What the commands that measure share: run, compare and profile.
#pragma once

#include "cli/prediction.h"
#include "cli/report.h"
#include "exec/execute.h"
#include "exec/interleaved.h"

#include <string>
#include <vector>

namespace pw {

// Both show a progress line on a terminal; what disturbed the measurement is said on stderr.
Profile measure_with_progress(const Config& config, const Model& model, const std::vector<int>& sizes);
RunResult execute(const Job& job, RunOptions options);
InterleavedRun interleave(const Job& job, int turns);

// Returns how many samples had been learnt from after each of the first updates.
std::vector<double> samples_after(const Job& job, std::size_t updates);

// Make the measured report, and its JSON with what only executions have: losses, gradient_norms, weights_hash.
Report report_of(const RunResult& result, const Config& config);
Json json_of(const RunResult& result, const Report& report);
std::string print_learning(const RunResult& result);  // "loss 2.3026 to 2.1034 in 20 updates   weights ..."

}  // namespace pw
