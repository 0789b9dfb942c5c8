// Names of keys in other tools, and keys that belong to another block: the error about an unknown key suggests the
// right one.
#pragma once

#include "workloads/text/yaml.h"

#include <span>

namespace pw {

// Returns each name once.
std::span<const OtherName> other_names();

}  // namespace pw
