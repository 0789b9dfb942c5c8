// The comparison of a prediction and a measurement of the same plan.
#pragma once

#include "exec/execute.h"
#include "exec/measuring/interleaved.h"
#include "report/error_parts.h"
#include "report/hooks.h"
#include "report/json.h"
#include "report/report.h"
#include "viz/plot.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pw {

// What probes during the run say of the job, whatever profile it has.
struct Calibrated {
    ProbedCosts calibration;
    Report predicted;  // by calibration.costs
    int turns = 0;
    ReferenceWork reference_work;
};

// Signed, (predicted - measured) / measured. NaN where something was predicted and nothing measured.
struct PredictionErrors {
    double step_time = 0;
    double peak_memory = 0;          // of the device with the largest absolute error
    double resident_memory = 0;      // of the growth of the process
    double gpu_memory = 0;           // of the GPU with the largest absolute error
    double task_time_median = 0;     // over tasks F B I W R of the steps that the metrics are from
    std::map<Op, double> task_time;  // medians by operation, transfers left out
};

struct Comparison {
    Report predicted, measured;
    PredictionErrors errors;
    std::optional<RunResult> result = {};       // absent where traces are compared
    std::optional<ErrorParts> parts = {};       // absent for traces whose plan cannot be replayed
    std::optional<Calibrated> calibrated = {};  // present when the run took turns with probes
    Notices notes = {}, warnings = {};          // warnings say why the times are not comparable
    // What to do first where a stored profile predicts a machine that differs from the profile's machine. Else empty.
    // If there are warnings, the advice is also the first warning.
    std::string advice = {};

    // Returns the part of the step time's error by which the costs of the profile differ from the costs during the run.
    double drift() const;
};

// Compares two traces of the same plan. Throws Error (BadInput) where their plans differ, or the traces are swapped.
Comparison compare_traces(Report predicted, Report measured);

// Simulates and runs a job. With turns, the run alternates with probes that calibrate the costs. If the config names no
// profile, the prediction uses the calibrated costs. All ranks call this together, in with_all_ranks()
// (exec/all_ranks.h), and only rank 0 receives both sides. A run that `hooks` stop ends after a step, and its steps so
// far are compared. A run with turns is not stopped. Throws as run() does, and with several ranks ErrorOfRank.
Comparison compare_run(const Job& job, int turns = 0, const Hooks& hooks = {});

inline constexpr int kTurns = 8;
// Returns the turns that were asked for. By default there are none if the config names a profile, otherwise kTurns, or
// fewer, so that the probes take at most twice as long as the run. Throws Error (BadInput) for a backend that cannot
// take turns.
int turns_for(const Job& job, std::optional<int> asked);
// Returns a note on what is about to run in how many turns, and how long that is predicted to take. Empty without
// turns.
std::string note_on_turns(const Job& job, int turns);

// `result` is the run of `measured`, if the run is known: it has the memory of processes and GPUs.
PredictionErrors errors_of(const Report& predicted, const Report& measured,
                           const std::optional<RunResult>& result = {});

// Returns the bytes by which a process is predicted to grow while it runs a plan on cores (docs/metrics.md#memory):
// every device's arena in whole huge pages, and what a run takes besides.
Bytes resident_memory_of(const Report& predicted);
// Returns the bytes by which the memory in use on a GPU is predicted to grow: the arenas of its devices.
Bytes gpu_memory_of(const Report& predicted, const std::vector<int>& devices);

Json to_json(const Comparison& comparison);
std::string to_text(const Comparison& comparison);           // a table of both sides
std::string calibration_text(const Comparison& comparison);  // empty without calibration
void plot_comparison(const Comparison& comparison, const std::string& file, const View& view = {});  // on one time axis

}  // namespace pw
