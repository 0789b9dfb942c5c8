// JSON of what this library returns: `to_json` of a struct is the object that the commands print with --json.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace pw {

using Json = nlohmann::ordered_json;  // keys in the order in which they are added

}  // namespace pw
