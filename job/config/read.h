// From the text of a config to a Config, in two steps. Reading uses only the text and the files that are part of it: a
// rank table and a CSV of lengths. Completing adds the defaults that depend on the schedule and the launcher.
#pragma once

#include "job/config/config.h"
#include "job/setup/plan_defaults.h"
#include "workloads/text/yaml.h"

#include <memory>
#include <string>
#include <vector>

namespace pw {

// A claim is a number of stages that a key implies.
struct StageClaim {
    Yaml at;
    int stages;
    std::string what;  // "'pipeline.split' makes 3 stages"
};

// A config as in its text. Mistakes are noted in the source of `root`.
struct WrittenConfig {
    Yaml root;
    Config config;  // without the number of stages, and without devices that the text leaves out
    std::vector<StageClaim> claims;
};

// Applies the overrides and reads every key. Paths are relative to `folder`.
WrittenConfig read_config(std::shared_ptr<Source> source, const std::string& folder,
                          const std::vector<std::string>& set);

// Completes a config for a process that is one of `ranks`. Throws Error (BadInput) with all mistakes, including those
// of the text.
Config complete(WrittenConfig written, const PlanDefaults& schedule, int ranks);

}  // namespace pw
