// A sweep is `simulate` with a block `sweep`: it tries every combination of the block's values and prints one table.
#pragma once

#include "cli/command.h"
#include "report/report.h"
#include "workloads/error.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

struct SweepPoint {
    std::vector<std::string> texts;  // value of every axis, in their order
    std::optional<Report> report;    // without events; absent when there is an error
    std::optional<Error> error;
};

// Simulates every point; `config` is what the arguments load. It throws the first error when no point can be simulated.
void simulate_sweep(const ConfigArguments& arguments, const Config& config, bool json, const std::string& plot);

// Returns the first line of what an error says.
std::string first_line(const Error& error);

// Returns short names of the axes: "micro_batches" for pipeline.micro_batches, the whole key where two end alike.
std::vector<std::string> short_names(const std::vector<SweepAxis>& axes);

// Throws Error (BadInput) when `file` has an unknown suffix or no axis has numbers to stand along x.
void check_sweep_plot(const std::vector<SweepAxis>& axes, const std::string& file);
// Draws step time against the first axis with numbers, one line for each combination of the others.
void plot_sweep(const std::vector<SweepAxis>& axes, const std::vector<SweepPoint>& points, const std::string& file);

}  // namespace pw
