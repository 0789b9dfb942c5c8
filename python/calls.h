// The calls of the Python module, without Python: each call loads a config and returns an outcome, with the notes that
// the command of the same name prints. All throw Error as the functions of report/ do.
#pragma once

#include "python/outcome.h"
#include "report/answers.h"
#include "report/config_source.h"
#include "report/hooks.h"

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace pw {

// Returns the prediction of a config. With events, its report has the whole trace.
Outcome simulated(const ConfigSource& source, bool with_events);
// Returns the predictions of configs, or the error of each, on `threads` threads. 0: a thread per core. If the call is
// stopped, the remaining configs have errors.
std::vector<std::variant<Outcome, Error>> all_simulated(const std::vector<ConfigSource>& sources, int threads,
                                                        const Hooks& hooks);
// Simulates all combinations of the values, without axes the combinations of the block `sweep`.
Outcome swept(const ConfigSource& source, std::vector<SweepAxis> axes, const Hooks& hooks);
// Returns answers about the plan of a config. `text` has the slack of all tasks (CSV) if asked.
Outcome answered(const ConfigSource& source, const Questions& questions, const Hooks& hooks);

struct SearchEffort {
    std::optional<double> seconds = {};  // absent: no limit for plans, 60 for the objectives of other planners
    int threads = 0;                     // 0: a thread per core
};
Outcome searched(const ConfigSource& source, const SearchEffort& effort, const Hooks& hooks);

// Executes the plan of a config on this machine.
Outcome executed(const ConfigSource& source, const Hooks& hooks);
Outcome compared(const ConfigSource& source, std::optional<int> turns, const Hooks& hooks);
Outcome compared(const Report& predicted, const Report& measured);

// Reads a trace of any program, from one file, a file per rank, or their folder. `tasks` are patterns of names.
Outcome imported(const std::vector<std::string>& files, const std::vector<std::string>& tasks);
// Replays the plan of a measured trace with its own times.
Outcome replayed_with(const Report& measured, bool explained);

// Returns the names of the tasks of every device, in order: "3F7", "3SEND_F7>4".
std::vector<std::vector<std::string>> tasks_of(const ConfigSource& source);
// Returns the plan in PyTorch's format compute_only.
std::string csv_of(const ConfigSource& source);
// Returns the config with all its values, as YAML.
std::string complete_text(const ConfigSource& source);
// Returns the model and the schedule of the config: "resnet50, 1f1b".
std::string summary_of(const ConfigSource& source);

// Reads the trace that write_trace() wrote of a report, whose devices have these names and limits.
std::shared_ptr<const Report> read_own_report(const std::string& file, const std::vector<std::string>& names,
                                              const std::vector<Bytes>& limits);

// Draws traces in a column. For a run, draws the step that its metrics describe.
void plot_reports(const std::vector<std::shared_ptr<const Report>>& reports, const std::vector<std::string>& titles,
                  const std::string& file, const View& view);

}  // namespace pw
