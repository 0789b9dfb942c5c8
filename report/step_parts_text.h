// What the steps of plans consist of, and what their differences do.
#pragma once

#include "report/json.h"
#include "search/step_parts.h"

#include <string>
#include <vector>

namespace pw {

struct NamedParts {
    std::string name;
    StepParts parts;
};

Json json_of(const StepParts& parts);  // nanoseconds by name
// Returns a table with a row for each part that some plan has, and the differences from `first`. The last row has the
// step times.
std::string print_differences(const NamedParts& first, const std::vector<NamedParts>& others);

}  // namespace pw
