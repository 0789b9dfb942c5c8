// JSON files, read as strictly as YAML: values nest so deep and no deeper, an object has a key once, and messages show
// no whole values. Header only, for those that link the library.
#pragma once

#include "workloads/error.h"
#include "workloads/text/printable.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pw {

inline constexpr int kMostJsonDepth = 64;

// Returns what messages show of a value: a number or a text as it is, of all else the type.
template <class Json>
std::string shown(const Json& value) {
    return value.is_structured() ? std::string(value.type_name()) : shortened(value.dump(), 80);
}

// Parses a text or a stream. `keep(depth, event, value)` is the parser's callback: what it does not keep takes no
// memory. Throws Error (BadInput): "`what`: not JSON: parse error at line 1, ...", with `help` where there is one.
template <class Json = nlohmann::json, class Input, class Keep>
Json parse_json(Input&& input, std::string_view what, Keep keep, std::string_view help = {}) {
    try {
        return Json::parse(std::forward<Input>(input), [&](int depth, typename Json::parse_event_t event, Json& value) {
            if (depth > kMostJsonDepth)
                fail("{}: values nest more than {} deep\n  help: check the brackets", what, kMostJsonDepth);
            return keep(depth, event, value);
        });
    } catch (const nlohmann::json::exception& error) {
        const std::string_view text = error.what();  // "[json.exception.parse_error.101] parse error at line 1, ..."
        fail("{}: not JSON: {}{}{}", what, shortened(text.substr(std::min(text.find("] ") + 2, text.size())), 300),
             help.empty() ? "" : "\n  help: ", help);
    }
}

// Parses a text and keeps the whole of it.
template <class Json = nlohmann::json>
Json parse_json(const std::string& text, std::string_view what) {
    using Event = typename Json::parse_event_t;
    std::vector<std::set<std::string>> keys;  // keys of the objects that are open
    return parse_json<Json>(text, what, [&](int, Event event, Json& value) {
        if (event == Event::object_start)
            keys.emplace_back();
        else if (event == Event::object_end)
            keys.pop_back();
        else if (event == Event::key && !keys.back().insert(value.template get<std::string>()).second)
            fail("{}: key {} stands twice in an object\n  help: keep one of the two", what, shown(value));
        return true;
    });
}

}  // namespace pw
