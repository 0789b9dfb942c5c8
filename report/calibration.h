// Factors of a config's block `calibration`, from measured steps of its plan or of others.
#pragma once

#include "job/job.h"
#include "report/config_source.h"
#include "report/factor_fit.h"
#include "report/hooks.h"
#include "report/json.h"
#include "workloads/costs/calibration.h"
#include "workloads/units.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

// A run of a plan: how long its step took, or its rate.
struct MeasuredRun {
    std::string name;                   // in reports, empty: the config itself
    std::string path = {};              // a config, empty: the config that is calibrated
    std::vector<std::string> set = {};  // overrides, "parallel.tensor=4"
    std::optional<Ns> step = {};
    double tokens_per_second = 0, samples_per_second = 0;  // of the cluster, without `step`
};

// Reads "parallel.tensor=4,parallel.zero=1=53.7 s", "other.yaml=150000 tokens/s" or "53.7 s". A comma within brackets
// separates no overrides. `place` names the text in errors: "--run". Throws Error (BadInput) if the step is no time and
// no rate.
MeasuredRun read_run(const std::string& text, const std::string& place);
// Reads a table whose columns are keys of the config and `step`. A cell of a key that is empty overrides nothing.
// Throws Error (BadInput) with the line.
std::vector<MeasuredRun> read_runs(const std::string& path);

struct CalibratedRun {
    std::string name;
    Ns measured = 0, before = 0, after = 0;  // steps, measured, predicted without factors, and with them
    double error_before() const { return static_cast<double>(before) / static_cast<double>(measured) - 1; }
    double error_after() const { return static_cast<double>(after) / static_cast<double>(measured) - 1; }
};

struct CalibrationResult {
    Calibration calibration;
    std::vector<FactorVerdict> verdicts;  // of computing, inside, between, outside
    double scatter = 0;                   // FactorFit::scatter
    std::vector<CalibratedRun> runs;
    Notices notes = {};
};

// Simulates the runs under changed factors until they fit. Throws Error: BadInput at the key that cannot be used, where
// the config or a run is not of a transformer, and where there is no run.
CalibrationResult fit_calibration(const ConfigSource& source, const std::vector<MeasuredRun>& runs,
                                  const Hooks& hooks = {});

// Returns the text of the config with the block `calibration`, for a file at `path`.
std::string calibrated_yaml(const CalibrationResult& result, const ConfigSource& source, const std::string& path);

Json to_json(const Calibration& calibration);
Json to_json(const CalibrationResult& result);
std::string to_text(const CalibrationResult& result);

// Returns "calibrated by 3 runs: computing 1.08, outside 1.3 times as long", or nothing without a calibration.
std::string note_on_calibration(const Calibration& calibration);

}  // namespace pw
