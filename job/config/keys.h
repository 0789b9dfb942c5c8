// What the rows of keys (job/config/key.h) say to people and other programs.
#pragma once

#include <string>
#include <vector>

namespace pw {

// A key in words, in Markdown as on docs/config.md.
struct KeyFacts {
    std::string block, name;
    std::string takes;     // "1 to 65536", "`auto`, `even`"
    std::string fallback;  // the default
    std::string help;
};
// Returns all keys of this version, in the order of a printed config.
std::vector<KeyFacts> config_keys();

// Returns a JSON Schema (draft 2020-12) of configs, for editors. It knows names, types, ranges and units of keys, and
// not how keys depend on each other.
std::string config_schema();

}  // namespace pw
