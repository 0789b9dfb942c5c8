// What the readers of traces share: the events of a file one by one, and their values, typed and bounded.
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
#include <vector>

namespace pw {

inline constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
inline constexpr std::int64_t kMaxTime = std::int64_t{1} << 62;  // differences of two times do not overflow

// Returns how an event of a trace that pipewright did not write says which task it is, as a help text.
const char* help_on_forms();

// A form of trace files. Its row is defined where its reader is; trace_forms.cpp lists the rows.
struct TraceForm {
    bool of_one_rank;                              // a trace is several files
    bool (*is_task)(const nlohmann::json& event);  // the first task of a file says its form
    // Throws Error (BadInput) naming file and position.
    Trace (*read)(const std::vector<std::string>& paths);
};

// An object of a trace file and where it is there, for messages.
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

// Reads the file of a trace. `take` gets its events one by one with their numbers, so that they are never in memory all
// at once. Returns the rest of the file; traceEvents is an empty list there.
nlohmann::json parse_events(const std::string& path, const char* help,
                            const std::function<void(const JsonPlace& event, std::size_t index)>& take);

// Completes a trace that has only events, by device and with steps from 0: what its tasks say of the plan. Puts them in
// list order. Throws Error (BadInput) naming `path`.
void complete_from_tasks(Trace& trace, const std::string& path);

}  // namespace pw
