// The config of a file, complete.
#pragma once

#include "job/config/config.h"

#include <string>
#include <vector>

namespace pw {

// Loads the file, applies the overrides, checks every key and reports all mistakes at once: throws Error (BadInput). A
// schedule that is a file is opened, and a launcher of ranks is asked through the environment.
Config load_config(const std::string& path, const std::vector<std::string>& set);

}  // namespace pw
