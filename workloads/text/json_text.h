// JSON files, read as strictly as YAML: nesting is limited, an object has a key once, and messages show no whole
// values. Every JSON text is parsed here (tests/house checks that), so that no reader can omit the limits. Header only,
// for programs that link the library.
#pragma once

#include "workloads/error.h"
#include "workloads/text/printable.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

namespace pw {

inline constexpr int kMostJsonDepth = 64;
inline constexpr std::size_t kMostOrderedKeys = 1000;  // of an object that keeps their order, and looks each up in turn

// Returns the text that messages show for a value: a number or a text as it is, otherwise the type.
template <class Json>
std::string shown(const Json& value) {
    return value.is_structured() ? std::string(value.type_name()) : shortened(value.dump(), 80);
}

// Throws Error (BadInput) for what the parser says: "parse error at line 1, column 2: ...".
[[noreturn]] inline void fail_not_json(std::string_view what, std::string_view said, std::string_view help) {
    const auto says = [&](std::string_view part) { return said.find(part) != said.npos; };
    if (says("line 1, column 1: syntax error while parsing value - unexpected end of input"))
        fail("{}: not JSON: the text is empty\n  help: name another file, or write it again", what);
    if (says("unexpected end of input") || says("missing closing quote")) {
        const std::size_t place = said.find("line ");
        fail("{}: not JSON: the text ends in the middle, at {}\n  help: write or copy the file again", what,
             said.substr(std::min(place, said.size()), said.find(": ") - std::min(place, said.find(": "))));
    }
    fail("{}: not JSON: {}{}{}", what, shortened(said, 300), help.empty() ? "" : "\n  help: ", help);
}

// Parses a text or a stream. `keep(depth, event, value)` is the parser's callback: values that it does not keep take no
// memory. Throws Error (BadInput): "`what`: not JSON: parse error at line 1, ...", with `help` if there is one.
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
        fail_not_json(what, text.substr(std::min(text.find("] ") + 2, text.size())), help);
    }
}

// Follows the events of a parser. Throws Error (BadInput) where an object has a key twice, or more than `most` keys.
class UniqueKeys {
public:
    explicit UniqueKeys(std::string_view what, std::size_t most = static_cast<std::size_t>(-1))
        : what_(what), most_(most) {}

    template <class Json>
    void see(typename Json::parse_event_t event, const Json& value) {
        using Event = typename Json::parse_event_t;
        if (event == Event::object_start)
            open_.emplace_back();
        else if (event == Event::object_end)
            open_.pop_back();
        else if (event == Event::key && !open_.back().insert(value.template get<std::string>()).second)
            fail("{}: key {} is listed twice in an object\n  help: keep one of the two", what_, shown(value));
        else if (event == Event::key && open_.back().size() > most_)
            fail("{}: an object has more than {} keys\n  help: name a file of the kind that is read here", what_,
                 most_);
    }

private:
    const std::string what_;
    const std::size_t most_;
    std::vector<std::unordered_set<std::string>> open_;  // keys of the objects that are open
};

// Parses a text and keeps the whole of it.
template <class Json = nlohmann::json>
Json parse_json(const std::string& text, std::string_view what) {
    UniqueKeys keys(what, std::is_same_v<Json, nlohmann::ordered_json> ? kMostOrderedKeys : text.size());
    return parse_json<Json>(text, what, [&](int, typename Json::parse_event_t event, Json& value) {
        keys.see(event, value);
        return true;
    });
}

}  // namespace pw
