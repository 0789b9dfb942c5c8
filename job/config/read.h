// From the text of a config to a Config, in two steps. Reading takes nothing but the text and the files that are
// part of it, a rank table and a CSV of lengths. Completing adds what only others know: the schedule and the launcher.
#pragma once

#include "job/config/config.h"
#include "workloads/text/yaml.h"

#include <memory>
#include <string>
#include <vector>

namespace pw {

// A claim is a number of stages that some key implies.
struct StageClaim {
    Yaml at;
    int stages;
    std::string what;  // "'pipeline.split' makes 3 stages"
};

// A config as its text says it. Mistakes are noted in the source of `root`.
struct WrittenConfig {
    Yaml root;
    Config config;  // the number of stages, and devices that the text leaves out, are still missing
    std::vector<StageClaim> claims;
};

// Applies the overrides and reads every key. Paths start at `folder`.
WrittenConfig read_config(std::shared_ptr<Source> source, const std::string& folder,
                          const std::vector<std::string>& set);

// These defaults are what the schedule decides where the config is silent: stages per device, or, when the schedule is
// a file, everything that is in it. A 0 says nothing.
struct PlanDefaults {
    int chunks = 1;
    int stages = 0, devices = 0, micro_batches = 0;
};

// Completes a config for a process that is one of `ranks`. Throws Error (BadInput) with all mistakes, those of the
// text included.
Config complete(WrittenConfig written, const PlanDefaults& schedule, int ranks);

}  // namespace pw
