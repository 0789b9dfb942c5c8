// What compares one schedule and several.
#pragma once

#include "cli/command.h"

#include <optional>
#include <string>
#include <vector>

namespace pw {

// Says that a profile is measured first, where the config needs one.
void note_on_measuring(const Config& config);

// Compares several schedules of one config: it prints a table on stdout, and writes to `folder`, unless that is empty,
// accuracy.json, table.txt, profile.yaml when there is one, a timeline per schedule and the losses.
void compare_shown(const ConfigArguments& arguments, const std::vector<std::string>& schedules,
                   const std::string& folder, std::optional<int> turns);

}  // namespace pw
