// The text of a config once more, with overrides in it.
#pragma once

#include "job/config/config.h"
#include "workloads/text/yaml.h"

#include <string>

namespace pw {

// Returns a value on one line, as YAML reads it back.
std::string flow_text(const Yaml& value);

// Returns the blocks of a text, a key on each line, without comments and without defaults. Relative paths of files that
// the config of the text names begin at the folder `from`, and in the result at the folder `to`.
std::string print_given(const Yaml& root, const Config& config, const std::string& from, const std::string& to);

}  // namespace pw
