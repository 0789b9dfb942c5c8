// What the name of an event says about a task: `F3`, `1F3`, `stage0_F_mb0`, `fwd mb 3 stage 1`, `forward_step`.
#pragma once

#include "schedules/plan/task.h"

#include <optional>
#include <string_view>

namespace pw {

inline constexpr int kMostNumber = 65'535;  // in a name
struct NamedTask {
    std::optional<Op> op;
    // `chunk` is a part of the model on its device, and is set only if there is another number for the micro-batch.
    std::optional<int> stage, microbatch, step, chunk, rank;
    bool is_word = false;  // the operation is a word, and no single letter
    // Returns whether this is a task. A task without a number is counted: n-th forward, n-th backward.
    bool is_task() const { return op && (microbatch || is_word); }
};

// Nothing is set for a name that has a word or a number which names of tasks do not have.
NamedTask named_in(std::string_view name);
// Returns the operation that a word is for, such as `fwd`, in any case.
std::optional<Op> op_of_word(std::string_view word);
// Returns the only operation that words of a text name, among them words that are no parts of names: `Forward` for
// 'my forward of'. Letters such as F count where no longer word names an operation.
std::optional<Op> op_in(std::string_view text);
// Returns the letters at the beginning of a text.
std::string_view word_at(std::string_view text);
// Returns the number that a text has, if it has nothing else.
std::optional<int> only_number_in(std::string_view text);

}  // namespace pw
