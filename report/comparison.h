// Errors of a prediction: they are signed, (predicted - measured) / measured.
#pragma once

#include "cli/command.h"
#include "report/error_parts.h"
#include "report/notes.h"
#include "report/report.h"
#include "exec/execute.h"
#include "exec/measuring/interleaved.h"

#include <map>
#include <optional>
#include <string>

namespace pw {

struct Comparison {
    double step_time_error = 0;
    double peak_memory_error = 0;          // of the device with the largest absolute error
    double resident_memory_error = 0;      // of what the process grew by; NaN where that was not measured
    double gpu_memory_error = 0;           // of the GPU with the largest; NaN where nothing ran on one
    double task_time_error_median = 0;     // over tasks F B I W R of the steps that the metrics are from
    std::map<Op, double> task_time_error;  // medians by operation, transfers left out
};

// What probes beside the run say of the job, whatever profile it has.
struct Calibrated {
    Calibration calibration;
    Report predicted;  // by calibration.costs
    int turns = 0;
    Yardstick yardstick;
};

struct Sides {
    Report predicted, measured;
    std::optional<RunResult> result = {};       // present when this command ran the job
    std::optional<ErrorParts> parts = {};       // nothing for traces whose plan cannot be replayed
    std::optional<Calibrated> calibrated = {};  // present when the run took turns with probes

    // Returns the part of the step time's error by which the costs of the profile differ from those beside the run.
    double drift() const;
};

// Returns the bytes by which a process is predicted to grow while it runs a plan on cores (docs/metrics.md#memory):
// every device's arena in whole huge pages, and what a run takes beside them.
Bytes resident_memory_of(const Report& predicted);
// Returns the bytes by which the memory in use on a GPU is predicted to grow: the arenas of its devices.
Bytes gpu_memory_of(const Report& predicted, const std::vector<int>& devices);

// Compares the two; an error is NaN where something was predicted and nothing measured.
Comparison comparison_of(const Sides& sides);
std::string print(const Comparison& comparison, const Sides& sides);

inline constexpr int kTurns = 8;

// Simulates and runs a pipeline. With turns, the run takes them with the probes that calibrate it; without a profile of
// the config's, that is the prediction. Ranks call it together; the others than rank 0 get nothing.
Sides both_sides(const Job& job, int turns = 0);
// Returns the turns that were asked for. By default there are none with a profile of the config's; without one kTurns,
// or fewer, so that the probes take at most twice as long as the run. Throws Error (BadInput) for a backend that
// cannot.
int turns_for(const Job& job, std::optional<int> asked);
// Returns the job of the config with a measured profile: the config's own, or one measured now. The emulated backend
// needs none. Ranks call it together.
Job calibrated_job(Config config);
Json json_of(const Sides& sides, const Comparison& comparison);
// What is told of the calibration beside the run; nothing where there was none.
void add_calibrated(const Sides& sides, Json& json);
std::string print_calibrated(const Sides& sides);
void plot_sides(const Sides& sides, const std::string& file);  // on one time axis

// Compares several schedules of one config on one profile: it prints a table on stdout, and writes to `folder`, unless
// that is empty, accuracy.json, table.txt, profile.yaml when there is one, a timeline per schedule and the losses.
void compare_schedules(const ConfigArguments& arguments, const std::vector<std::string>& schedules,
                       const std::string& folder, std::optional<int> turns);

}  // namespace pw
