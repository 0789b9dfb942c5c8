// From text to a tree: the part of the strict reader that uses yaml-cpp.
#pragma once

#include "workloads/text/yaml.h"

#include <string>
#include <vector>

namespace pw {

// Returns the document in the source's text. It notes mistakes such as repeated keys in `source`, and throws all of
// them at once if the text is not YAML.
YamlNode parse_tree(Source& source);

// Applies "key.path=value" to the tree, in order. Later overrides win.
void apply_overrides(Source& source, YamlNode& root, const std::vector<std::string>& overrides);

}  // namespace pw
