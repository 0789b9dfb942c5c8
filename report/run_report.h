// What a run of a job leaves beyond its trace: losses, norms, memory of processes, places of devices.
#pragma once

#include "exec/execute.h"
#include "report/hooks.h"
#include "report/json.h"
#include "report/report.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pw {

// Returns the object of the report with what only executions have: losses, gradient_norms, weights_hash, places ...
Json to_json(const RunResult& result, const Report& measured);
// Returns a line like "loss 2.3026 to 2.1034 in 20 updates   weights ...".
std::string learning_text(const RunResult& result);

// Returns the number of training samples up to each of the first updates, after the samples `before` the job.
std::vector<double> samples_after(const Job& job, std::size_t updates, std::int64_t before = 0);

// Returns the function of RunOptions that passes the progress to `hooks`.
std::function<void(const Progress&)> progress_for(const Hooks& hooks);

}  // namespace pw
