// The names of tasks in the traces of a person's own program: 'fwd_mb{mb}_stage{stage}'.
#pragma once

#include "schedules/import/task_names.h"

#include <string>
#include <string_view>
#include <vector>

namespace pw {

// A part of a pattern: a text as it is, a number, a word for an operation, or any text.
struct PatternPart {
    enum class Kind { Text, Number, Operation, Any } kind;
    std::string text;                                 // as it is
    std::optional<int> NamedTask::*number = nullptr;  // what the number counts
};

struct TaskPattern {
    std::string text;      // as it was given
    std::optional<Op> op;  // empty: a part of the pattern says it
    std::vector<PatternPart> parts;
    bool used = false;
};

// Which names are tasks: names of the forms in task_names.h, or where patterns are given only names that match a
// pattern as a whole. The first pattern that matches counts.
class TaskNames {
public:
    TaskNames() = default;
    // Throws Error (BadInput) with a pattern that cannot be read, and with a pattern that names no operation.
    explicit TaskNames(const std::vector<std::string>& patterns);

    bool has_patterns() const { return !patterns_.empty(); }
    std::string print() const;  // "'fwd_{mb}', 'bwd_{mb}'"
    NamedTask task_in(std::string_view name);
    // Throws Error (BadInput) with the first pattern that has matched no name so far, and with names that no pattern
    // has matched. `path` is the trace.
    void require_use(const std::string& path) const;

private:
    std::vector<TaskPattern> patterns_;
    std::vector<std::string> unmatched_;  // some names
};

// Returns the forms of a pattern, for help texts.
const char* pattern_forms();

}  // namespace pw
