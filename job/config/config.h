// The effective configuration: the setup of a search and the sweep of a file, with its text.
#pragma once

#include "job/setup/search_setup.h"

#include <string>
#include <vector>

namespace pw {

// One key of the block `sweep` with its values.
struct SweepAxis {
    std::string key;                 // "pipeline.micro_batches"
    std::vector<std::string> texts;  // YAML of one line each (key=text is an override)
};

struct Config : SearchSetup {
    std::vector<SweepAxis> sweep;    // in the order of the file, empty without a sweep
    std::vector<std::string> paths;  // the absolute paths of all files and folders that the config names
};

// Returns whether the workload is a transformer in training on a cluster, whose costs follow from shapes.
inline bool is_transformer(const Config& config) { return config.workload.transformer.has_value(); }

// Returns the config of a setup, with the default search.
Config config_of(const Setup& setup);

// Returns the canonical YAML of an effective configuration.
std::string print_config(const Config& config);

}  // namespace pw
