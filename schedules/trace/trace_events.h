// The events of a trace file one by one, and their values with types and bounds. All readers of traces use them.
#pragma once

#include "schedules/trace/trace.h"
#include "workloads/error.h"
#include "workloads/text/json_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace pw {

inline constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
inline constexpr std::int64_t kMaxTime = std::int64_t{1} << 62;  // differences of two times do not overflow

// Returns a help text: which traces can be read, and how an event of another program's trace describes its task.
const char* help_on_forms();

// An object of a trace file and its path in the file, for messages.
struct JsonPlace {
    const std::string& path;
    const nlohmann::json& object;
    std::string name;  // "traceEvents[3].args"
    const char* help;

    template <class... Args>
    [[noreturn]] void reject(const char* key, fmt::format_string<Args...> text, Args&&... args) const {
        fail("trace '{}': {}.{}: {}", path, name, key, fmt::format(text, std::forward<Args>(args)...));
    }

    const nlohmann::json& at(const char* key) const {
        const auto found = object.find(key);
        if (found == object.end())
            fail("trace '{}': {} has no key '{}'\n  help: {}", path, name, key, help);
        return *found;
    }

    JsonPlace object_at(const char* key) const {
        const nlohmann::json& value = at(key);
        if (!value.is_object())
            reject(key, "expected an object, got {}", value.type_name());
        return {path, value, fmt::format("{}.{}", name, key), help};
    }
    bool has(const char* key) const { return object.contains(key); }

    std::int64_t integer(const char* key, std::int64_t min, std::int64_t max) const {
        return checked(key, at(key), min, max);
    }

    Ns micros(const char* key) const {
        const nlohmann::json& value = at(key);
        const double time = value.is_number() ? value.get<double>() : -1;
        if (!(time >= 0 && time < static_cast<double>(kMaxTime) / 1e3))
            reject(key, "expected microseconds, got {}", shown(value));
        return std::llround(time * 1e3);
    }

    int small(const char* key, std::int64_t min = 0, std::int64_t max = kMaxInt) const {
        return static_cast<int>(integer(key, min, max));
    }

    std::int64_t checked(const char* key, const nlohmann::json& value, std::int64_t min, std::int64_t max) const {
        if (!value.is_number_integer())
            reject(key, "expected an integer, got {}", value.is_number() ? shown(value) : value.type_name());
        const bool huge = value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(max);
        const std::int64_t number = huge ? max : value.get<std::int64_t>();
        if (huge || number < min || number > max)
            reject(key, "{} is not between {} and {}", shown(value), min, max);
        return number;
    }

    std::string text(const char* key) const {
        const nlohmann::json& value = at(key);
        if (!value.is_string())
            reject(key, "expected a string, got {}", value.type_name());
        return value.get<std::string>();
    }

    bool flag(const char* key) const {
        const nlohmann::json& value = at(key);
        if (!value.is_boolean())
            reject(key, "expected true or false, got {}", value.type_name());
        return value.get<bool>();
    }
};

// Returns the name of a host that an event's args have. Empty if they have none.
std::string host_in(const nlohmann::json& args);

// Reads the file of a trace. `take` is called with each event and its number, so that all events are never in memory at
// once. Returns the rest of the file, with an empty list of traceEvents.
nlohmann::json parse_events(const std::string& path, const char* help,
                            const std::function<void(const JsonPlace& event, std::size_t index)>& take);

// Completes a trace that has only events, by device and with steps from 0, with the facts of the plan that follow from
// its tasks. Puts the events in list order. Throws Error (BadInput) with `path`.
void complete_from_tasks(Trace& trace, const std::string& path);

}  // namespace pw
