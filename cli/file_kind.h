// The kind of a file, recognised by its beginning, so that an error can name the kind of a wrong file.
#pragma once

#include <string>

namespace pw {

enum class FileKind {
    Unknown,  // a config, or an unknown kind
    Model,    // layers with times, of any form that is read, or an instance of a partitioning problem
    Profile,
    Products,     // measured by shape
    Trace,        // from pipewright or another program
    Plan,         // *.csv
    Table,        // a *.csv that is neither a plan nor layers
    NsightOther,  // from Nsight Systems: its own recording, or a *.csv without the ranges of NVTX
};
FileKind kind_of(const std::string& path);
bool names_workload(const std::string& path);  // as a config does

// Throws Error (BadInput) with the kind of the file and how to use it, unless the file may be a config.
void require_config(const std::string& path);
// The same for a file that must be a trace. `command` makes a trace, or its picture, from a config.
void require_trace(const std::string& path, const std::string& command);

}  // namespace pw
