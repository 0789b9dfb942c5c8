#include "schedules/import/task_patterns.h"

#include "workloads/error.h"
#include "workloads/text/printable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

namespace pw {

namespace {

using Kind = PatternPart::Kind;

struct NumberPart {
    std::string_view name;
    std::optional<int> NamedTask::*number;
};
constexpr NumberPart kNumberParts[] = {{"mb", &NamedTask::microbatch},
                                       {"stage", &NamedTask::stage},
                                       {"chunk", &NamedTask::chunk},
                                       {"rank", &NamedTask::rank},
                                       {"step", &NamedTask::step}};

[[noreturn]] void fail_pattern(const std::string& pattern, const std::string& fact) {
    fail("pattern '{}' of tasks: {}\n  help: {}", shortened(pattern, 80), fact, pattern_forms());
}

// Takes "OP=" off the beginning of a pattern.
std::optional<Op> take_op(std::string_view& rest) {
    const std::size_t equals = rest.find('=');
    const std::optional<Op> op = equals == rest.npos ? std::nullopt : op_of_word(rest.substr(0, equals));
    if (op)
        rest.remove_prefix(equals + 1);
    return op;
}

PatternPart part_in_braces(const std::string& pattern, std::string_view name) {
    if (name == "op")
        return {Kind::Operation, "", nullptr};
    const auto row = std::find_if(std::begin(kNumberParts), std::end(kNumberParts),
                                  [&](const NumberPart& part) { return part.name == name; });
    if (row == std::end(kNumberParts))
        fail_pattern(pattern, fmt::format("no part of a name is called '{}'", name));
    return {Kind::Number, "", row->number};
}

void add_part(const std::string& pattern, PatternPart part, std::vector<PatternPart>& parts) {
    if (part.kind != Kind::Text && !parts.empty() && parts.back().kind == part.kind)
        fail_pattern(pattern, "two numbers, or two texts of any kind, follow each other without a text between them");
    for (const PatternPart& known : parts)
        if ((part.kind == Kind::Number && known.number == part.number) ||
            (part.kind == Kind::Operation && known.kind == part.kind))
            fail_pattern(pattern, "it has a part twice");
    parts.push_back(std::move(part));
}

// Returns the operation that the texts of a pattern name.
std::optional<Op> op_of_texts(const TaskPattern& pattern) {
    std::string texts;
    for (const PatternPart& part : pattern.parts)
        texts += part.kind == Kind::Text ? part.text : " ";
    return op_in(texts);
}

TaskPattern pattern_of(const std::string& text) {
    TaskPattern pattern{text, {}, {}};
    std::string_view rest = text;
    pattern.op = take_op(rest);
    while (!rest.empty()) {
        if (rest.front() == '{') {
            const std::size_t end = rest.find('}');
            if (end == rest.npos)
                fail_pattern(text, "a brace is not closed");
            add_part(text, part_in_braces(text, rest.substr(1, end - 1)), pattern.parts);
            rest.remove_prefix(end + 1);
        } else if (rest.front() == '*') {
            add_part(text, {Kind::Any, "", nullptr}, pattern.parts);
            rest.remove_prefix(1);
        } else {
            const std::size_t end = std::min(rest.find_first_of("{*"), rest.size());
            add_part(text, {Kind::Text, std::string(rest.substr(0, end)), nullptr}, pattern.parts);
            rest.remove_prefix(end);
        }
    }
    const bool names_op = std::any_of(pattern.parts.begin(), pattern.parts.end(),
                                      [](const PatternPart& part) { return part.kind == Kind::Operation; });
    if (names_op && pattern.op)
        fail_pattern(text, "it names the operation twice");
    if (!names_op && !pattern.op)
        pattern.op = op_of_texts(pattern);
    if (!names_op && !pattern.op)
        fail_pattern(text, "it does not say which operation it is of");
    return pattern;
}

bool is_digit_at(std::string_view name, std::size_t at) {
    return at < name.size() && name[at] >= '0' && name[at] <= '9';
}

// Takes a part off the rest of a name at `at`. A number is a whole row of digits.
bool take(const PatternPart& part, std::string_view name, std::size_t& at, NamedTask& task) {
    if (part.kind == Kind::Text) {
        const bool same = name.substr(at).starts_with(part.text);
        at += same ? part.text.size() : 0;
        return same;
    }
    if (part.kind == Kind::Operation) {
        const std::optional<Op> op = op_of_word(word_at(name.substr(at)));
        at += word_at(name.substr(at)).size();
        task.op = op;
        return op.has_value();
    }
    if (!is_digit_at(name, at) || (at > 0 && is_digit_at(name, at - 1)))
        return false;
    int number = 0;
    const auto [end, error] = std::from_chars(name.data() + at, name.data() + name.size(), number);
    at = static_cast<std::size_t>(end - name.data());
    task.*part.number = number;
    return error == std::errc() && number <= kMostNumber;
}

bool is_letter_at(std::string_view name, std::size_t at) { return !word_at(name.substr(at, 1)).empty(); }

// Returns whether a word would begin inside of another word: after "any text" it begins where a word does.
bool is_inside_word(const std::vector<PatternPart>& parts, std::size_t part, std::string_view name, std::size_t at) {
    return part > 0 && parts[part].kind == Kind::Operation && parts[part - 1].kind == Kind::Any && at > 0 &&
           is_letter_at(name, at - 1);
}

// Matches as globs do: after a failure, the last "any text" takes a character more.
std::optional<NamedTask> matched(const TaskPattern& pattern, std::string_view name) {
    NamedTask task, task_then;
    std::size_t part = 0, at = 0, any = pattern.parts.size(), at_then = 0;
    while (part < pattern.parts.size() || at < name.size()) {
        if (part < pattern.parts.size() && pattern.parts[part].kind == Kind::Any) {
            any = part++;
            at_then = at;
            task_then = task;
        } else if (part < pattern.parts.size() && !is_inside_word(pattern.parts, part, name, at) &&
                   take(pattern.parts[part], name, at, task)) {
            ++part;
        } else if (any == pattern.parts.size() || at_then == name.size()) {
            return {};
        } else {
            part = any + 1;
            at = ++at_then;
            task = task_then;
        }
    }
    if (pattern.op)
        task.op = pattern.op;
    task.is_word = true;
    return task;
}

}  // namespace

const char* pattern_forms() {
    return "write the name with {mb}, {stage}, {chunk}, {rank} or {step} for its numbers, {op} for forward, bwd, W or "
           "another word for an operation, * for any text, as in 'fwd_mb{mb}_stage{stage}'; F=, B=, I=, W= or R= in "
           "front says the operation, as in 'F=layers_{mb}'";
}

TaskNames::TaskNames(const std::vector<std::string>& patterns) {
    for (const std::string& pattern : patterns)
        patterns_.push_back(pattern_of(pattern));
}

std::string TaskNames::print() const {
    std::vector<std::string> texts;
    for (const TaskPattern& pattern : patterns_)
        texts.push_back(fmt::format("'{}'", pattern.text));
    return fmt::format("{}", fmt::join(texts, ", "));
}

NamedTask TaskNames::task_in(std::string_view name) {
    constexpr std::size_t kMostUnmatched = 3, kLongest = 256;
    if (patterns_.empty())
        return named_in(name);
    for (TaskPattern& pattern : patterns_)
        if (const std::optional<NamedTask> task = matched(pattern, name.substr(0, kLongest))) {
            pattern.used = true;
            return *task;
        }
    if (unmatched_.size() < kMostUnmatched)
        if (std::string shown = shortened(std::string(name), 60);
            std::find(unmatched_.begin(), unmatched_.end(), shown) == unmatched_.end())
            unmatched_.push_back(std::move(shown));
    return {};
}

void TaskNames::require_use(const std::string& path) const {
    for (const TaskPattern& pattern : patterns_)
        if (!pattern.used)
            fail("trace '{}': no name matches the pattern '{}'{}\n  help: {}", path, pattern.text,
                 unmatched_.empty()
                     ? ""
                     : fmt::format("; names that no pattern matches: '{}'", fmt::join(unmatched_, "', '")),
                 pattern_forms());
}

}  // namespace pw
