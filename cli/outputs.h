// The files and folders that a command writes, checked together before the work.
#pragma once

#include "cli/command.h"

#include <string>
#include <vector>

namespace pw {

struct Output {
    enum class Kind { File, Picture, Folder };
    std::string option;  // "--trace"
    std::string path;    // empty: none
    Kind kind = Kind::File;
};

// Throws Error if an output cannot be written (RunFailed), and if one is a file or a folder that the command reads or
// another output, under whatever name (BadInput). Pipes and devices may be both. Ranks that work together call it in
// with_all_ranks() (exec/all_ranks.h), so that the failure of rank 0, which writes the files, ends all.
void check_outputs(const std::vector<Output>& outputs, const std::vector<std::string>& inputs);

// Returns what a command with these arguments reads: the config and all files and folders that it names, also in its
// sweep and in `more`, which are further overrides.
std::vector<std::string> inputs_of(const ConfigArguments& arguments, const Config& config,
                                   const std::vector<std::string>& more = {});

// The file of --csv, none for standard output.
Output csv_output(const std::string& file);

}  // namespace pw
