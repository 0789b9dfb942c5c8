// Tells what a file is by its beginning, so that one given where another is expected is told apart by name.
#pragma once

#include <string>

namespace pw {

enum class FileKind {
    Unknown,  // a config, or nothing that is known here
    Model,    // layers with times, PipeDream's or YAML, or an instance of a partitioning problem
    Profile,
    Trace,  // Chrome's, pipewright's own or another's
    Plan,   // *.csv
};
FileKind kind_of(const std::string& path);

// Throws Error (BadInput), naming what the file is and how it is used, when the file is no config.
void require_config(const std::string& path);
// Does the same for a file that must be a trace; `command` is what makes one, or the picture of one, from a config.
void require_trace(const std::string& path, const std::string& command);

}  // namespace pw
