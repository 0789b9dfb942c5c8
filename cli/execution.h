// What run and launch share.
#pragma once

#include "cli/command.h"

#include <string>
#include <string_view>

namespace pw {

// What run is asked for, and launch for it.
struct RunArguments {
    ConfigArguments config;
    std::string trace, resume, checkpoints, dump, save, losses;
    int steps = 0, checkpoint_every = 0, keep = 2;
    bool reference = false, json = false;
    bool say_started = false;  // rank 0 writes kStartedLine first: `launch` asks for it

    Config load() const;  // with so many steps
};
inline constexpr const char* kSayStarted = "--say-started";
inline constexpr std::string_view kStartedLine = "pipewright run has started";
void add_run_options(CLI::App& command, RunArguments& arguments);
void check_targets(const RunArguments& arguments);  // before a training of hours
// Returns "\n  help: go on with --resume DIR" where the folder has something to go on from. It may be empty: no folder.
std::string way_on(const std::string& checkpoints);
bool is_same_place(const std::string& folder, const std::string& other);

}  // namespace pw
