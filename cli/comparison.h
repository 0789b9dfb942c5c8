// Errors of a prediction: they are signed, (predicted - measured) / measured.
#pragma once

#include "cli/command.h"
#include "cli/error_parts.h"
#include "cli/prediction.h"
#include "cli/report.h"
#include "exec/execute.h"

#include <map>
#include <optional>
#include <string>

namespace pw {

struct Comparison {
    double step_time_error = 0;
    double peak_memory_error = 0;          // of the device with the largest absolute error
    double resident_memory_error = 0;      // of what the process grew by; NaN where that was not measured
    double task_time_error_median = 0;     // over tasks F B I W R of the steps that the metrics are from
    std::map<Op, double> task_time_error;  // medians by operation, transfers left out
};

struct Sides {
    Report predicted, measured;
    std::optional<RunResult> result = {};  // present when this command ran the job
    std::optional<ErrorParts> parts = {};  // nothing for traces whose plan cannot be replayed
};

// Returns the bytes by which a process is predicted to grow while it runs a plan on cores (docs/metrics.md#memory):
// every device's arena in whole huge pages, and what a run takes beside them.
Bytes resident_memory_of(const Report& predicted);

// Compares the two; an error is NaN where something was predicted and nothing measured.
Comparison comparison_of(const Sides& sides);
std::string print(const Comparison& comparison, const Sides& sides);

// Simulates and runs a pipeline.
Sides both_sides(const Job& job);
// Returns the job of the config with a measured profile: the config's own, or one measured now. The emulated backend
// needs none.
Job calibrated_job(Config config);
Json json_of(const Sides& sides, const Comparison& comparison);
void plot_sides(const Sides& sides, const std::string& file);  // on one time axis

// Compares several schedules of one config on one profile: it prints a table on stdout, and writes to `folder`, unless
// that is empty, accuracy.json, table.txt, profile.yaml when there is one, a timeline per schedule and the losses.
void compare_schedules(const ConfigArguments& arguments, const std::vector<std::string>& schedules,
                       const std::string& folder);

}  // namespace pw
