// The commands of `pipewright`: each adds its options to a sub-command and returns what to do.
#pragma once

#include "job/config/config.h"
#include "schedules/orders/schedule.h"

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace pw {

// An action runs after parsing, with results on stdout and all else on stderr. Failures are thrown.
using Action = std::function<void()>;

Action add_simulate(CLI::App& command);
Action add_profile(CLI::App& command);
Action add_run(CLI::App& command);
Action add_launch(CLI::App& command);
Action add_compare(CLI::App& command);
Action add_search(CLI::App& command);
Action add_plot(CLI::App& command);
Action add_validate(CLI::App& command);
Action add_plan(CLI::App& command);
Action add_list(CLI::App& command);

// What commands on a config share: its path and the overrides.
struct ConfigArguments {
    std::string path;
    std::vector<std::string> set;

    Config load() const;
};

void add_set(CLI::App& command, std::vector<std::string>& set);
void add_config(CLI::App& command, ConfigArguments& arguments);  // CONFIG and --set

}  // namespace pw
