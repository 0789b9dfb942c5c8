// Loads a config from a file or a text and completes it.
#pragma once

#include "job/config/config.h"

#include <memory>
#include <string>
#include <vector>

namespace pw {

// Loads the file, applies the overrides, checks every key and reports all mistakes at once: throws Error (BadInput).
// Opens the schedule if it is a file, and reads the launcher's environment variables. The config may name the schedule
// `own` of the caller.
Config load_config(const std::string& path, const std::vector<std::string>& set,
                   std::shared_ptr<const Schedule> own = nullptr);
// Does the same with a text. Errors name it `name`, a path in the folder from which the paths in the text are.
Config load_config(const std::string& name, std::string text, const std::vector<std::string>& set,
                   std::shared_ptr<const Schedule> own = nullptr);

// Returns the absolute folder from which the paths in a config are: its own, of a stream (/dev/stdin) the current one.
std::string folder_of_config(const std::string& path);

}  // namespace pw
