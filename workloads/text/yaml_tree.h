// From text to a tree: the part of the strict reader that knows yaml-cpp.
#pragma once

#include "workloads/text/yaml.h"

#include <string>
#include <vector>

namespace pw {

// Returns the document in the source's text. It notes repeated keys and the like in `source`, and throws all mistakes
// at once when the text is no YAML at all.
YamlNode parse_tree(Source& source);

// Applies "key.path=value" to the tree, in order; later ones win.
void apply_overrides(Source& source, YamlNode& root, const std::vector<std::string>& overrides);

}  // namespace pw
