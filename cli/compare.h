// Functions shared by the comparison of a single schedule and of several.
#pragma once

#include "cli/command.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

// Prints a note if the config needs a profile that is measured first.
void note_on_measuring(const Config& config);

struct SchedulesOutput {
    // For accuracy.json, table.txt, profile.yaml if costs are measured, a timeline per schedule and the losses. Empty:
    // no files.
    std::string folder;
    std::string csv;  // as --csv
    bool json = false;
    std::optional<int> turns;
};

// Compares several schedules of a config. Prints a table to stdout.
void compare_shown(const ConfigArguments& arguments, const std::vector<std::string>& schedules,
                   const SchedulesOutput& output);

}  // namespace pw
