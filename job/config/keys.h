// The facts of the rows of keys (job/config/key.h) for people and for other programs.
#pragma once

#include <string>
#include <vector>

namespace pw {

// The facts of a key in Markdown, as on docs/config.md.
struct KeyFacts {
    std::string block, name;
    std::string takes;     // "1 to 65536", "`auto`, `even`"
    std::string fallback;  // the default
    std::string help;
};
// Returns all keys of this version, in the order of a printed config.
std::vector<KeyFacts> config_keys();

// Returns a JSON Schema (draft 2020-12) of configs, for editors. It has names, types, ranges and units of keys, but no
// dependencies between keys.
std::string config_schema();

}  // namespace pw
