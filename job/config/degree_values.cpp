#include "job/config/degree_values.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace pw {

int read_degree(const Yaml& at, const DegreeFacts& facts) {
    if (facts.words == nullptr)
        return static_cast<int>(at.integer(facts.least, facts.least, facts.most));
    if (!at.is_text() || at.text().find('+') == std::string::npos)
        return *facts.words->parse(at.choice(facts.words->names().front(), facts.words->names()));
    const std::optional<int> value = facts.words->parse(at.text());
    if (!value)
        at.complain(fmt::format("'{}' is '{}'", at.path(), at.text()),
                    fmt::format("join some of {} by +", fmt::join(facts.words->names(), ", ")));
    return value.value_or(facts.least);
}

std::string schema_of_degree(const DegreeFacts& facts) {
    if (facts.words != nullptr) {
        const std::vector<std::string_view> names = facts.words->names();
        return fmt::format(R"({{"anyOf": [{{"enum": ["{}"]}}, {{"type": "string", "pattern": "^({})(\\+({}))*$"}}]}})",
                           fmt::join(names, R"(", ")"), fmt::join(names, "|"), fmt::join(names, "|"));
    }
    return fmt::format(R"({{"type": "integer", "minimum": {}, "maximum": {}}})", facts.least, facts.most);
}

}  // namespace pw
