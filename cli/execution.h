// Options and checks that run and launch share.
#pragma once

#include "cli/command.h"
#include "viz/plot.h"

#include <string>
#include <string_view>

namespace pw {

// The options of run, which launch passes on to it.
struct RunArguments {
    ConfigArguments config;
    std::string trace, resume, checkpoints, dump, save, losses, log;
    View view;  // of the losses
    int steps = 0, checkpoint_every = 0, keep = 2;
    bool reference = false, json = false, dry = false;
    bool say_started = false;  // rank 0 writes kStartedLine first, for `launch`

    Config load() const;  // with `steps`, if given
};
inline constexpr const char* kSayStarted = "--say-started";
inline constexpr std::string_view kStartedLine = "pipewright run has started";
void add_run_options(CLI::App& command, RunArguments& arguments);
void check_targets(const RunArguments& arguments, const Config& config);  // before a training that may take hours
// Returns "\n  help: continue with --resume DIR" if the folder has a checkpoint to continue from, else nothing. An
// empty name means no folder.
std::string resume_help(const std::string& checkpoints);

}  // namespace pw
