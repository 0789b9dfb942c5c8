#include "job/config/degree_values.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace pw {

int read_degree(const Yaml& at, const DegreeFacts& facts) {
    if (!facts.names)
        return static_cast<int>(at.integer(facts.least, facts.least, facts.most));
    const std::vector<std::string_view> names = facts.names();
    return static_cast<int>(std::ranges::find(names, at.choice(names.front(), names)) - names.begin());
}

std::string schema_of_degree(const DegreeFacts& facts) {
    return facts.names ? fmt::format(R"({{"enum": ["{}"]}})", fmt::join(facts.names(), R"(", ")"))
                       : fmt::format(R"({{"type": "integer", "minimum": {}, "maximum": {}}})", facts.least, facts.most);
}

}  // namespace pw
