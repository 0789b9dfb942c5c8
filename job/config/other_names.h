// What other tools call keys of the config, and keys that are looked for in another block: the error about an
// unknown key names the right one.
#pragma once

#include "workloads/text/yaml.h"

#include <span>

namespace pw {

// Returns each name once.
std::span<const OtherName> other_names();

}  // namespace pw
