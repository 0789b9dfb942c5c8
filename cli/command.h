// The commands of `pipewright`. Each function adds the options of a command to a sub-command and returns its action.
#pragma once

#include "job/job.h"
#include "report/config_source.h"
#include "report/json.h"
#include "report/report.h"

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace pw {

// An action runs after parsing. It prints results to stdout and everything else to stderr. Failures are thrown.
using Action = std::function<void()>;

Action add_simulate(CLI::App& command);
Action add_profile(CLI::App& command);
Action add_run(CLI::App& command);
Action add_launch(CLI::App& command);
Action add_compare(CLI::App& command);
Action add_search(CLI::App& command);
Action add_calibrate(CLI::App& command);
Action add_import(CLI::App& command);
Action add_plot(CLI::App& command);
Action add_validate(CLI::App& command);
Action add_plan(CLI::App& command);
Action add_list(CLI::App& command);
Action add_help(CLI::App& command);

// The options of all commands, by their names.
inline constexpr const char* kQuiet = "-q,--quiet";
inline constexpr const char* kVerbose = "-v,--verbose";

// The arguments of all commands that take a config: its path and the overrides.
struct ConfigArguments : ConfigSource {
    void read_pipe();     // if the config comes from a pipe, so that it can be loaded again
    Config load() const;  // throws Error (BadInput) with the kind of the file if it is not a config
};

void add_set(CLI::App& command, std::vector<std::string>& set);
void add_config(CLI::App& command, ConfigArguments& arguments);  // CONFIG and --set

// --csv, the table of the results as CSV (report/csv_table.h).
void add_csv(CLI::App& command, std::string& file);
// Writes the rows. "-" is standard output, an empty name no file.
void write_csv(const std::string& file, const Json& rows);
// Refuses two results on standard output.
void check_csv(const std::string& file, bool json);

// Called before long work. Throws Error if the config cannot be written to the file, or if the file's suffix is neither
// .yaml nor .yml.
void check_config_target(const std::string& path);

// Makes a job, and prints its notes about the plan to stderr.
Job job_of(Config config);

// Reads a trace, from one file or a file per rank, and prints the notes on the trace to stderr.
Report report_in(const std::vector<std::string>& paths, const std::vector<std::string>& patterns = {});

}  // namespace pw
